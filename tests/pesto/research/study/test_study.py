"""Studies: the file that describes one, its cells and their keys, what becomes of a cell, the file of results."""

import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import FileError, InputError, UsageError
from pesto.core.executing.executor import WorkFailure, WorkResult
from pesto.core.files import lock
from pesto.research.study import runner, store
from pesto.research.study.cells import CellAnswer, ProgressPoint, canonical, cells_of
from pesto.research.study.execute import InstanceCache, execute
from pesto.research.study.spec import load_study, study_names
from solvers import api
from solvers.base import SolverEntry
from solvers.files import problem_json
from solvers.instances.table import make
from solvers.result import Status

STUBS = Path(__file__).resolve().parents[4] / "tests" / "solvers" / "stubs"
GRID = """
[[grid]]
solvers = ["list", "single"]
limits_s = [5]
seeds = [0, 1]
deterministic = true
[[grid.families]]
name = "layered"
seeds = [0, 1, 2]
params = { layers = [2, 3], width = 3 }
"""
HEAD = 'format_version = 1\nname = "t"\n'


def study(folder: Path, text: str):
    path = folder / "t.toml"
    path.write_text(HEAD + text)
    return load_study(str(path))


def cells(folder: Path, text: str):
    return cells_of(study(folder, text))


def test_a_grid_is_every_combination_in_a_fixed_order(tmp_path):
    """2 sizes x 3 seeds of instances, each with 2 solvers x 2 seeds; instance by instance."""
    found = cells(tmp_path, GRID)
    assert len(found) == 6 * 4
    assert [c.ordinal for c in found] == list(range(24))
    assert len({c.key for c in found}) == 24
    labels = [c.instance.label for c in found]
    assert labels[:5] == ["layered layers=2 width=3 gpus=2 transfer=1 longest=1 seed=0"] * 4 + [labels[4]]
    assert [(c.solver, c.seed) for c in found[:4]] == [("list", 0), ("list", 1), ("single", 0), ("single", 1)]


def test_a_key_is_what_the_cell_is_and_nothing_else(tmp_path):
    """Order, other cells, defaults spelled out and 5 written as 5.0 leave a key alone; every setting changes it."""
    first = {c.key for c in cells(tmp_path, GRID)}
    turned = GRID.replace('["list", "single"]', '["single", "list"]').replace("[5]", "[5.0]")
    turned = turned.replace("width = 3", "width = 3, gpus = 2, transfer = 1")
    assert {c.key for c in cells(tmp_path, turned)} == first
    for other in (
        GRID.replace("[5]", "[6]"), GRID.replace("width = 3", "width = 4"), GRID.replace("true", "false"),
        GRID.replace("limits_s", "gap = 0.1\nlimits_s"), GRID.replace("limits_s", "workers = 2\nlimits_s"),
        GRID.replace("limits_s", "start = false\nlimits_s"), GRID.replace("seeds = [0, 1]\n", "seeds = [7, 8]\n"),
    ):  # fmt: skip
        assert not {c.key for c in cells(tmp_path, other)} & first, other


def test_keys_stay_the_same_from_version_to_version(tmp_path):
    """A resumed study must recognise its cells: this one's key was written down."""
    assert cells(tmp_path, GRID)[0].key == "d5280beef5bb6853844e432ec6f626a4"


def test_a_cell_of_two_grids_is_there_once(tmp_path):
    assert len(cells(tmp_path, GRID + GRID.replace("[2, 3]", "[3, 4]"))) == 36


def test_formulations_multiply_only_solvers_that_have_them(tmp_path, monkeypatch):
    entry = SolverEntry(module="x", attribute="X", isolated=True, formulations=("tight", "paper"))
    monkeypatch.setitem(api.SOLVERS, "milp", entry)
    text = GRID.replace('"single"', '"milp"').replace("limits_s", 'formulations = ["paper", "tight"]\nlimits_s')
    found = cells(tmp_path, text)
    assert {(c.solver, c.formulation) for c in found} == {("list", ""), ("milp", "paper"), ("milp", "tight")}
    assert {c.formulation for c in cells(tmp_path, GRID.replace('"single"', '"milp"'))} == {"", "tight"}
    with pytest.raises(UsageError, match="milp has no formulation 'papr' - did you mean paper"):
        cells(tmp_path, text.replace('["paper", ', '["papr", '))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("limits_s", "limit_s", "unknown key 'limit_s' - did you mean limits_s"),
        ("width", "widht", "no parameter 'widht' - did you mean width"),
        ('"layered"', '"layerd"', "no family is called 'layerd' - did you mean layered"),
        ('"single"', '"singel"', "no solver is called 'singel' - did you mean single"),
        ("[5]", "[]", "limits_s"),
        ("[5]", '["5"]', "limits_s"),
        ("[5]", "[-1]", "limits_s"),
        ("true", "true\ncoarsen_to = [50]", "coarsen_to does not go with stage 'schedule'"),
        ("solvers", 'stage = "plan"\nsolvers', "families does not go with stage 'plan'"),
        ("solvers", 'stage = "plam"\nsolvers', "stage"),
        ("families", "familes", "unknown key 'familes' - did you mean families"),
        ("layers = [2, 3]", "layers = [2, 0]", "give an integer from 1"),
    ],
)
def test_a_mistake_is_named_with_the_remedy(tmp_path, old, new, says):
    assert old in GRID
    with pytest.raises(UsageError, match=re.escape(says)):
        cells(tmp_path, GRID.replace(old, new, 1))


def test_models_and_clusters_are_checked_before_anything_runs(tmp_path):
    text = '[[grid]]\nstage = "plan"\nsolvers = ["cpsat"]\nlimits_s = [1]\n[[grid.models]]\nname = "rnnlm"\n'
    (cell,) = cells(tmp_path, text)
    assert cell.instance.label == "rnnlm 2x2048 v100x2-nvlink"
    assert cell.settings == {"workers": 8, "gap": 0.0, "deterministic": False, "coarsen_to": 200, "congestion": True}
    with pytest.raises(UsageError, match="did you mean tiny"):
        cells(tmp_path, text + 'variants = ["tny"]')
    with pytest.raises(UsageError, match="no cluster is named 'v100x3'"):
        cells(tmp_path, text + 'clusters = ["v100x3"]')
    with pytest.raises(UsageError, match="a model without nodes"):
        cells(tmp_path, text.replace('"plan"', '"schedule"'))


def test_shipped_studies_are_listed():
    """`pesto studies`: the cells and limits of each, and its file's own words."""
    done = CliRunner().invoke(pesto, ["studies", "--json"], standalone_mode=False)
    found = {row["name"]: row for row in json.loads(done.stdout)["studies"]}
    assert tuple(found) == study_names()
    for name, row in found.items():
        cells = cells_of(load_study(name))
        assert (row["cells"], row["limits_s"]) == (len(cells), sum(cell.limit_s for cell in cells))
    page = " ".join(CliRunner().invoke(pesto, ["studies"], standalone_mode=False).stdout.split())
    assert "Pesto (Middleware '21) settles on about 200 nodes" in page
    assert found["congestion"]["title"] in page


def test_shipped_studies_are_read_by_name():
    assert study_names() == ("coarsening", "congestion", "pardnn", "solvers", "solvers-models")
    for name in study_names():
        loaded = load_study(name)
        assert loaded.spec.name == name
        assert loaded.spec.title
        assert loaded.about.endswith(".")
        assert cells_of(loaded)
    with pytest.raises(UsageError, match="did you mean solvers"):
        load_study("solver")


def test_a_solve_is_recorded_with_its_start_and_its_trace(tmp_path):
    """One task after another on `layered`: the row is what the solver said, the trace begins with the list schedule."""
    text = GRID.replace('"list", "single"', '"cpsat"').replace("[2, 3]", "[3]").replace("[5]", "[20]")
    cell = cells(tmp_path, text)[0]
    answer = execute(cell, InstanceCache())
    assert (answer.status, answer.limit_reason, answer.detail) == ("optimal", "none", "")
    assert answer.makespan == answer.lower_bound <= answer.start_makespan
    assert (answer.tasks, answer.devices, answer.edges) == (9, 2, 12)
    assert answer.bound_by
    assert answer.trace[0] == ProgressPoint(0.0, answer.start_makespan, answer.trace[0].lower_bound)
    assert [p.makespan for p in answer.trace if p.makespan][-1] == answer.makespan
    assert [p.lower_bound for p in answer.trace] == sorted(p.lower_bound for p in answer.trace)
    free = execute(cells(tmp_path, text.replace("limits_s", "start = false\nlimits_s"))[0], InstanceCache())
    assert (free.makespan, free.start_makespan) == (answer.makespan, None)


@pytest.mark.parametrize(
    ("entry", "status", "detail"),
    [
        (SolverEntry(module="x", attribute="X", isolated=True, package="no-such-vendor"), "missing", "no-such-vendor"),
        (SolverEntry(module="bad_solvers", attribute="Raises", isolated=False), "crashed", ""),
        (SolverEntry(module="no_such_module", attribute="X", isolated=True), "missing", "no_such_module"),
    ],
)
def test_a_solver_that_fails_is_a_row_that_says_so(tmp_path, monkeypatch, entry, status, detail):
    monkeypatch.syspath_prepend(str(STUBS))
    monkeypatch.setitem(api.SOLVERS, "bad", entry)
    answer = execute(cells(tmp_path, GRID.replace('"single"', '"bad"'))[2], InstanceCache())
    assert (answer.status, answer.makespan) == (status, None)
    assert detail in answer.detail
    assert answer.detail
    assert answer.start_makespan is not None


def test_a_solver_that_is_killed_gets_one_more_try(tmp_path, monkeypatch):
    """Killed from outside once, the second try is the answer; killed twice, it is its own fault."""
    real, results = api.solve, []

    def solve(problem, name, options, report=None):
        result = real(problem, name, options, report=report)
        if name != "single" or not results:
            return result
        return results.pop(0)(result)

    def killed(result):
        return replace(result, status=Status.CRASHED, detail="killed by SIGKILL, without an answer")

    monkeypatch.setattr(api, "solve", solve)
    cell = cells(tmp_path, GRID)[2]
    results[:] = [killed]
    assert execute(cell, InstanceCache()).status in ("optimal", "feasible")
    results[:] = [killed, killed]
    answer = execute(cell, InstanceCache())
    assert (answer.status, answer.detail) == ("crashed", "killed by SIGKILL, without an answer")


def test_an_instance_that_cannot_be_built_is_refused_with_the_reason(tmp_path):
    """A file that is not there, one that is no problem, one that changed since; the other cells go on."""
    (tmp_path / "bad.json").write_text("{}")
    good = problem_json.Instance(problem=make("fork", tasks=5), name="fork")
    (tmp_path / "good.json").write_bytes(problem_json.dumps_problem(good))
    text = '[[grid]]\nsolvers = ["single"]\nlimits_s = [5]\n' + "".join(
        f'[[grid.problems]]\nfile = "{name}.json"\n' for name in ("gone", "bad", "good")
    )
    found = cells(tmp_path, text)
    gone, bad, fine = (execute(cell, InstanceCache()) for cell in found)
    assert (gone.status, bad.status, fine.status) == ("refused", "refused", "feasible")
    assert "gone.json" in gone.detail
    assert bad.detail
    assert fine.tasks == 5
    (tmp_path / "good.json").write_bytes(problem_json.dumps_problem(replace(good, name="another")))
    changed = execute(found[2], InstanceCache())
    assert changed.status == "refused"
    assert "run the study again" in changed.detail
    assert cells(tmp_path, text)[2].key != found[2].key


@pytest.fixture
def file(tmp_path):
    """An open file with the cells of GRID."""
    loaded = study(tmp_path, GRID)
    with store.opened(tmp_path / "t.sqlite") as opened:
        opened.sync(loaded, cells_of(loaded), "1")
        yield opened, cells_of(loaded), tmp_path


def rows(folder: Path, query: str, *values):
    with sqlite3.connect(folder / "t.sqlite") as connection:
        return connection.execute(query, values).fetchall()


ANSWER = {
    "status": "feasible",
    "makespan": 9,
    "lower_bound": 3,
    "trace": (ProgressPoint(0.0, 9, 2), ProgressPoint(0.5, None, 3)),
}


def test_a_result_its_trace_and_the_state_are_written_together_or_not_at_all(file):
    """Not leased, leased by another, and with a trace that the file refuses: nothing is written."""
    opened, (first, second, *_), folder = file
    with pytest.raises(FileError, match="taken the study's file over"):
        opened.commit(CellAnswer(key=first.key, **ANSWER))
    opened.lease(first.key)
    with pytest.raises(FileError, match="taken"):
        opened.lease(first.key)
    broken = CellAnswer(key=first.key, **{**ANSWER, "trace": (ProgressPoint(0.0, 9, 2), ProgressPoint(0.5, 9, None))})
    with pytest.raises(sqlite3.IntegrityError):
        opened.commit(broken)
    assert rows(folder, "SELECT count(*) FROM results UNION ALL SELECT count(*) FROM traces") == [(0,), (0,)]
    assert rows(folder, "SELECT state FROM cells WHERE key = ?", first.key) == [("running",)]
    opened.commit(CellAnswer(key=first.key, **ANSWER))
    assert rows(folder, "SELECT key, status, state, makespan, lower_bound FROM rows") == [
        (first.key, "feasible", "done", 9, 3)
    ]
    assert rows(folder, "SELECT * FROM traces") == [(first.key, 0.0, 9, 2), (first.key, 0.5, None, 3)]
    opened.lease(second.key)
    rows(folder, "UPDATE cells SET owner = 'another' WHERE key = ?", second.key)
    with pytest.raises(FileError, match="taken"):
        opened.commit(CellAnswer(key=second.key, **ANSWER))


def test_a_changed_study_keeps_what_is_done_and_says_what_is_left_behind(file):
    """Width 3 becomes 4 for one size: its cells are new, the old ones stay but are not run."""
    opened, found, folder = file
    for cell in (found[0], found[12]):
        opened.lease(cell.key)
        opened.commit(CellAnswer(key=cell.key, **ANSWER))
    opened.lease(found[1].key)
    changed = study(folder, GRID.replace("[2, 3]", "[3, 4]"))
    opened.sync(changed, cells_of(changed), "2")
    tally = opened.tally()
    assert (tally.done, tally.running, tally.pending) == (1, 0, 23)
    assert (tally.former_done, tally.former_pending) == (1, 11)
    assert opened.pending() == {c.key for c in cells_of(changed)} - {found[12].key}
    ordinals = [n for (n,) in rows(folder, "SELECT ordinal FROM cells")]
    assert len(set(ordinals)) == 36
    assert sorted(n for n in ordinals if n >= 0) == list(range(24))
    assert rows(folder, "SELECT created_by_version FROM study") == [("1",)]
    opened.sync(study(folder, GRID), found, "3")
    assert (opened.tally().done, opened.tally().former_done) == (2, 0)


def test_another_study_or_another_file_is_refused(file, tmp_path):
    opened, _, folder = file
    other = folder / "other.toml"
    other.write_text(HEAD.replace('"t"', '"other"') + GRID)
    loaded = load_study(str(other))
    with pytest.raises(UsageError, match="holds the study 't', not 'other'"):
        opened.sync(loaded, cells_of(loaded), "1")
    (folder / "text").write_text("no database " * 100)
    with pytest.raises(InputError, match="not a database"), store.opened(folder / "text"):
        pass
    with sqlite3.connect(folder / "mine.sqlite") as mine:
        mine.execute("CREATE TABLE cells (x)")
    with pytest.raises(InputError, match="no study"), store.opened(folder / "mine.sqlite"):
        pass
    rows(folder, "PRAGMA user_version = 9")
    with pytest.raises(InputError, match="schema 9, this program's is 1"), store.opened(folder / "t.sqlite"):
        pass


def test_one_run_at_a_time(tmp_path):
    path = tmp_path / "t.sqlite"
    again = lock.hold_lock(path, store.LOCK)
    with lock.hold_lock(path, store.LOCK), pytest.raises(UsageError, match="another run is writing it"), again:
        pass
    with lock.hold_lock(path, store.LOCK):
        assert list(tmp_path.iterdir()) == [tmp_path / ".t.sqlite.pesto-lock"]
    assert list(tmp_path.iterdir()) == []


class Scripted:
    """An executor without processes: cells in `dies` lose theirs so many times."""

    slots = 2

    def __init__(self, dies):
        self.dies, self.begun, self.waiting, self.closed = dict(dies), [], [], False

    def begin(self, work):
        assert len(self.waiting) < self.slots
        self.begun.append(work.key)
        self.waiting.append(work)

    def collect(self):
        work = self.waiting.pop(0)
        if self.dies.get(work.key, 0):
            self.dies[work.key] -= 1
            return [WorkFailure(key=work.key, why="death", detail="the worker ended", seconds=1.5)]
        return [WorkResult(key=work.key, data=msgspec.json.encode(CellAnswer(key=work.key, **ANSWER)), seconds=1.0)]

    def close(self):
        self.closed = True


def test_a_cell_that_loses_its_process_is_tried_again_and_at_last_is_a_failure(file):
    opened, found, folder = file
    scripted = Scripted({found[0].key: 2, found[3].key: 3})
    assert runner.run(found, opened, scripted, [].append) == 24
    assert scripted.closed
    assert [scripted.begun.count(found[k].key) for k in (0, 1, 3)] == [3, 1, 3]
    failed = rows(folder, "SELECT key, status, detail, seconds FROM rows WHERE status != 'feasible'")
    assert failed == [(found[3].key, "crashed", "3 times over, the worker ended", 4.5)]
    assert opened.retry_failed() == 1
    assert opened.pending() == {found[3].key}
    assert rows(folder, "SELECT count(*) FROM traces WHERE key = ?", found[3].key) == [(0,)]


def test_what_was_leased_is_free_again_when_a_run_is_interrupted(file):
    opened, found, _ = file

    def interrupted(step):
        if step.ran == 5:
            raise KeyboardInterrupt

    scripted = Scripted({})
    with pytest.raises(KeyboardInterrupt):
        runner.run(found, opened, scripted, interrupted)
    assert scripted.closed
    assert (opened.tally().done, opened.tally().running, opened.tally().pending) == (5, 0, 19)


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert canonical({"b": 1, "a": [1.0, None]}) == canonical({"a": [1.0, None], "b": 1}) == '{"a":[1.0,null],"b":1}'


def test_the_help_names_all_verbs(cli):
    assert [verb in cli(["study", "--help"]).output for verb in ("run", "status", "report")] == [True] * 3


@pytest.fixture
def cli():
    from click.testing import CliRunner

    return lambda words: CliRunner().invoke(pesto, words)


def test_status_of_no_study_is_an_error_of_its_kind(cli, tmp_path):
    (tmp_path / "x.sqlite").write_text(json.dumps({}))
    assert isinstance(cli(["study", "status", str(tmp_path / "x.sqlite")]).exception, InputError)
    assert isinstance(cli(["study", "status", str(tmp_path / "y.sqlite")]).exception, FileError)
