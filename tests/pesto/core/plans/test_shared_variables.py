"""A step planned beside the plan of another: shared variables stay in place, and what cannot be is refused."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import pesto
from pesto.cli.main import pesto as command
from pesto.core.errors import InputError, UsageError, VerificationError
from pesto.core.files import graph_file
from pesto.core.plans import plan_file
from pesto.core.plans.shared_variables import StepVariables

QUICK = {"cluster": "v100x2-nvlink", "time_limit_s": 0.0, "solver": "list"}


def step(names, *, source, pins=None, group=None, shape=(4, 4), kinds=None):
    """A variable and a product for each name; `pins` are devices, `group` puts all in one."""
    ops = []
    for k, name in enumerate(names):
        said = {"variable": {"name": name, "dtype": "float32", "shape": list(shape)}} if name else {}
        said |= {"device": pins[k]} if pins else {}
        said |= {"group": group} if group else {"group": f"g{k}"}
        ops.append({"name": f"v{k}", "type": "Variable", "outputs": [4096], "param_bytes": 4096, **said})
        more = {"runs_on": kinds} if kinds else {}
        ops.append({"name": f"m{k}", "inputs": [f"v{k}"], "outputs": [4096], "flops": 1e10, **more}
                   | ({"group": said["group"]}))  # fmt: skip
    head = {"format": "pesto-graph", "format_version": 1, "source": source, "kinds": ["cpu", "gpu"], "ops": ops}
    return graph_file.loads(json.dumps(head).encode(), source)


def first(names=("a", "b"), pins=("gpu:0", "gpu:1"), **options):
    """A plan that has its variables at `pins`."""
    return pesto.solve(step(names, source="first", pins=pins, **options), **QUICK)


def test_shared_variables_stay_in_place(tmp_path):
    """The bound is of the step with pins, also after a file; the fingerprint is the unchanged step's."""
    before, graph = first(pins=("gpu:1", "gpu:1")), step(("b", "a", "c"), source="second")
    plan = pesto.solve(graph, beside=before, **QUICK)
    assert {name: plan.variable_devices()[name] for name in "ab"} == {"a": "gpu:1", "b": "gpu:1"}
    assert plan.provenance.graph_fingerprint == graph.fingerprint()
    assert plan.provenance.lower_bound_name.endswith(", of the step with 2 variables pinned")
    assert "2 variables pinned" in repr(plan)
    plan_file.save(plan, tmp_path / "plan.json")
    again = plan_file.load(tmp_path / "plan.json")
    assert (again.beside, again.held) == (plan.beside, plan.held)
    pesto.check(again, graph)
    alone = pesto.solve(graph, **QUICK)
    assert plan.provenance.lower_bound_ticks > alone.provenance.lower_bound_ticks
    for lie in (replace(again, beside=None), replace(again, beside=replace(again.beside, variables={"a": "gpu:0"}))):
        with pytest.raises(VerificationError):
            pesto.check(lie, graph)


def test_old_files_without_names_are_read():
    """Graphs and plans have no variables then, and plan_file writes none."""
    plan = pesto.solve(step(("", ""), source="old"), **QUICK)
    assert plan.held == StepVariables() and b'"variables"' not in plan_file.dumps(plan)
    assert plan_file.loads(plan_file.dumps(plan), "plan").variable_devices() == {}


def test_what_cannot_be_kept_is_refused():
    """In one line, with what to do."""
    graph = step(("a", "b"), source="second")
    far = pesto.solve(step(("a", "b"), source="first", pins=("gpu:2", "gpu:3")), **{**QUICK, "cluster": "v100x4"})
    for error, said, before, now in (
        (InputError, "the plan of first names no variables", first(("", "")), graph),
        (InputError, "second: the graph names no variables", first(), step(("", ""), source="second")),
        (UsageError, "shares no variable with second.* - plan this step alone; or,", first(("x", "y")), graph),
        (InputError, r"variable a is float32 \[4, 4\] in second and float32 \[4, 5\]", first(shape=(4, 5)), graph),
        (InputError, "several variables called a", first(("a", "a#2")), graph),
        (InputError, "on gpu:2, gpu:3, the cluster has .* - give the cluster of that plan", far, graph),
    ):
        with pytest.raises(error, match=said):
            pesto.solve(now, beside=before, **QUICK)
    assert pesto.solve(graph, beside=far, **{**QUICK, "cluster": "v100x4"}).pins == {"a": "gpu:2", "b": "gpu:3"}


def test_variables_that_must_share_a_device():
    """Are refused where the plan has them on two; the remedy, the other way round, works."""
    graph = step(("a", "b"), source="second", group="one")
    with pytest.raises(InputError, match="which must share a device in second - solve second first"):
        pesto.solve(graph, beside=first(), **QUICK)
    before = pesto.solve(graph, **QUICK)
    plan = pesto.solve(step(("a", "b"), source="first"), beside=before, **QUICK)
    assert plan.variable_devices() == before.variable_devices()


def test_the_remedies_are_followed(tmp_path):
    """Steps solved again with names, a step of none shared planned alone, and variables with names of their own."""
    graph = step(("a", "b"), source="second")
    plan_file.save(first(), tmp_path / "plan.json")
    old = json.loads((tmp_path / "plan.json").read_bytes())
    del old["variables"]
    (tmp_path / "plan.json").write_text(json.dumps(old))
    with pytest.raises(InputError, match=r"an older version wrote it.* - solve its step again, from its program"):
        pesto.solve(graph, beside=tmp_path / "plan.json", **QUICK)
    with pytest.raises(
        InputError, match=r"read the step again, from .* a graph file in which each variable has a name$"
    ):
        pesto.solve(step(("", ""), source="second"), beside=first(), **QUICK)
    assert pesto.solve(graph, beside=first(), **QUICK).pins == {"a": "gpu:0", "b": "gpu:1"}
    assert pesto.solve(graph, **QUICK).pins == {}
    with pytest.raises(InputError, match="or give variables that differ names of their own"):
        pesto.solve(graph, beside=first(shape=(4, 5)), **QUICK)
    assert pesto.solve(graph, beside=first(("a", "own")), **QUICK).pins == {"a": "gpu:0"}


def test_steps_that_tear_each_other_are_planned_as_one():
    """Neither order can be: each step holds another pair together. One step of both, which the remedy names, is."""

    def grouped(together, source):
        made = step(("a", "b", "c"), source=source)
        group = made.group.copy()
        group[[k for k, name in enumerate(made.names) if name[1] in together]] = 9
        return replace(made, group=group)

    left, right = grouped("01", "left"), grouped("12", "right")
    for one, other in ((left, right), (right, left)):
        apart = first(("a", "b", "c"), ("gpu:0", "gpu:0", "gpu:1") if one is left else ("gpu:0", "gpu:1", "gpu:1"))
        with pytest.raises(InputError, match="where that is refused as well, plan both as one step"):
            pesto.solve(other, beside=pesto.solve(one, beside=apart, **QUICK), **QUICK)
    assert pesto.solve(grouped("012", "both"), **QUICK).variable_devices()


def test_a_variable_on_a_cpu_stays_there():
    """Also where all that uses it could run on an accelerator; not so the other way round."""
    host = pesto.solve(step(("a", "b"), source="host", kinds=["cpu"]), **QUICK)
    plan = pesto.solve(step(("a", "b"), source="second"), beside=host, **QUICK)
    assert set(plan.variable_devices().values()) == {"cpu:0"}
    with pytest.raises(InputError, match="where not all ops that use it in host can run"):
        pesto.solve(step(("a", "b"), source="host", kinds=["cpu"]), beside=first(), **QUICK)


def test_the_command_line(tmp_path):
    """The page and its JSON say beside what was planned."""
    plan_file.save(first(), tmp_path / "first.json")
    graph_file.save(step(("a", "b"), source="second"), tmp_path / "second.json")
    words = ["solve", "--graph", str(tmp_path / "second.json"), "--beside", str(tmp_path / "first.json"), "--no-search"]
    words += ["--solver", "list", "--time-limit", "0", "-q", "-o", str(tmp_path / "plan.json")]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert "the plan of first: 2 variables pinned, 1 on gpu:0, 1 on gpu:1" in " ".join(done.stdout.split())
    said = json.loads(CliRunner().invoke(command, [*words, "--json"]).stdout)
    assert said["beside"]["variables"] == {"a": "gpu:0", "b": "gpu:1"}
    assert said["lower_bound"].endswith("of the step with 2 variables pinned")
    cut = CliRunner().invoke(command, [*words, "--split", "auto"])
    assert isinstance(cut.exception, UsageError)
    assert "beside no plan - leave out --split; or plan both steps as one" in str(cut.exception)
