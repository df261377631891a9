"""The face of `pesto`: what it exports, its options by name, type and default, what it loads, and what it says."""

import ast
import dataclasses
import inspect
import re
import runpy
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest

import pesto
from pesto.choosing.whatif.grid import ClusterPoint, scale_cluster
from pesto.cli.verbs.grids import compare_command, sweep_command
from pesto.cli.verbs.measuring import profile_command
from pesto.core.costs.measured import save_profile
from pesto.core.option import options_of
from pesto.core.settings import SettingsOptions
from pesto.core.source import Origin, Source, SourceKeywords, StepKeywords
from pesto.verbs.verb_options import CompareKeywords, CompareOptions, SweepKeywords, SweepOptions

ROOT = Path(__file__).resolve().parents[2]
TOWERS = ROOT / "tests/data/two-towers.graph.json"
QUICK = {"solver": "list", "search": False, "time_limit_s": 0}
OWN = {"graph", "cluster", "costs", "start", "beside", "on_incumbent", "on_entry", "on_point", "methods"}
"""Parameters that are no field of `Settings`."""


@pytest.fixture(scope="module")
def graph() -> pesto.Graph:
    return pesto.load_graph(TOWERS)


@pytest.fixture(scope="module")
def plan(graph) -> pesto.Plan:
    return pesto.solve(graph, **QUICK)


def test_the_face_has_these_names() -> None:
    """Written out, so that none comes or goes unnoticed; `dir`, `__all__` and what checkers see are the same."""
    assert dir(pesto) == sorted(pesto.__all__) == [
        "AsyncClient", "Client", "Cluster", "Comparison", "FileError", "Graph", "Incumbent", "InfeasibleError",
        "InputError", "MismatchError",
        "NothingFoundError", "PestoError", "Plan", "Profile", "Settings", "Simulation", "SolverError", "Sweep",
        "UsageError", "VerificationError", "apply", "check", "compare", "explain", "graph_from_networkx",
        "load_cluster", "load_graph", "load_plan", "logical_cpus", "pipeline", "place", "profile", "record", "rewrite",
        "save_plan", "save_profile", "simulate", "solve", "sweep",
    ]  # fmt: skip
    imports = [node for node in ast.walk(ast.parse(Path(pesto.__file__).read_text())) if type(node) is ast.ImportFrom]
    assert {alias.asname for node in imports for alias in node.names} - {None} == set(pesto.__all__)
    assert all(getattr(pesto, name).__name__ == name for name in pesto.__all__)


def test_every_error_is_on_the_face() -> None:
    """Whoever catches an error need not look for its module."""
    found = {
        name for name, value in vars(pesto.core.errors).items() if inspect.isclass(value) and name.endswith("Error")
    }
    assert found == {name for name in pesto.__all__ if name.endswith("Error")}


def test_a_misspelt_name_is_an_attribute_error() -> None:
    """As in any module, so that hasattr and completion work."""
    with pytest.raises(AttributeError, match="'pesto' has no attribute 'slove'"):
        _ = pesto.slove


def test_importing_it_loads_nothing_heavy() -> None:
    """The programming interface comes with the first name that is asked for; TensorFlow not even then."""
    code = "import sys, pesto; dir(pesto); print(*sys.modules); pesto.solve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, then = (line.split() for line in done.stdout.splitlines())
    heavy = {"numpy", "numba", "msgspec", "networkx", "ortools", "tensorflow", "click", "solvers", "pesto.verbs.api"}
    assert not heavy & set(first)
    assert {"numpy", "pesto.verbs.api"} <= set(then) and "tensorflow" not in then


def parameters(name: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(pesto, name)).parameters)


def functions() -> list[str]:
    return [name for name in pesto.__all__ if inspect.isfunction(getattr(pesto, name))]


def test_no_option_hides() -> None:
    """No **kwargs; every parameter has a type; what has a default is given by name, but for a graph's file."""
    for name in functions():
        for parameter in parameters(name).values():
            assert parameter.kind is not inspect.Parameter.VAR_KEYWORD, name
            assert parameter.annotation is not inspect.Parameter.empty, (name, parameter)
            by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            has_default = parameter.default is not inspect.Parameter.empty
            assert by_name == has_default or (name in ("load_graph", "profile") and parameter.name == "file")


def test_solve_has_the_settings_as_they_are() -> None:
    """Names, defaults and types of `Settings`, each once; the sweep and the comparison have some of them."""
    fields = {f.name: f for f in dataclasses.fields(pesto.Settings)}
    types = typing.get_type_hints(pesto.Settings)
    found = parameters("solve")
    assert set(found) - OWN == set(fields)
    for name, field in fields.items():
        assert (found[name].default, found[name].annotation) == (field.default, types[name])
    assert typing.get_type_hints(SettingsOptions) == types  # what type checkers know of them
    for keywords, options in ((CompareKeywords, CompareOptions), (SweepKeywords, SweepOptions)):
        assert typing.get_type_hints(keywords) == typing.get_type_hints(options)
    for other in ("sweep", "compare"):
        shared = set(parameters(other)) & set(fields)
        assert all(parameters(other)[name].annotation == types[name] for name in shared)


@pytest.mark.parametrize(
    ("name", "command"), [("compare", compare_command), ("sweep", sweep_command), ("profile", profile_command)]
)
def test_defaults_are_those_of_the_command_line(name, command) -> None:
    """An option that both have means the same when it is left out."""
    said = {o.name.replace("time_limit", "time_limit_s"): o.default for o in command.params}
    shared = set(said) & set(parameters(name))
    assert len(shared) >= 5
    for option in shared:
        own, typed = parameters(name)[option].default, said[option]
        if own in (None, (), False):
            assert not typed or not isinstance(typed, str | int | float)  # click has a mark of its own for no default
        else:
            assert own == type(own)(typed)


def test_sources_are_named_as_in_source() -> None:
    """`load_graph` has every field of `Source`, and its defaults; so has `profile`, but for micro-batches: not run.

    How late weights are, and how many micro-batches an update has, is for the pipeline to say, whose plan tells it.
    """
    fields = {f.name: f.default for f in dataclasses.fields(Source) if f.name not in ("late", "every")}
    for name in ("load_graph", "profile"):
        others = ("iterations", "keep_disturbed", "feeds")
        if name == "profile":
            del fields["micro_batches"]
        assert {p.name: p.default for p in parameters(name).values() if p.name not in others} == fields
    accepted = {each.name: each.accepted_kind for each in options_of(Source)}
    assert typing.get_type_hints(SourceKeywords) | {"file": str | Path | None} == accepted  # what type checkers know
    assert set(SourceKeywords.__annotations__) - set(StepKeywords.__annotations__) == {"micro_batches"}


def test_enforcement_has_the_options_of_apply() -> None:
    """The three ways to enforce a plan share their options; read from the source, which loads no TensorFlow."""
    tree = ast.parse((ROOT / "pesto/tf/apply_placement/targets.py").read_text())
    options = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ApplyOptions")
    fields = {n.target.id: ast.literal_eval(n.value) for n in options.body if isinstance(n, ast.AnnAssign)}
    for name in ("apply", "place", "rewrite"):
        by_name = [p for p in parameters(name).values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
        own = {"keep": ()} if name == "rewrite" else {}  # of what feeds, where nothing can be passed on
        assert {p.name: p.default for p in by_name} == {**fields, **own}


def test_a_graph_file_is_planned_saved_checked_and_simulated(graph, tmp_path) -> None:
    """Two towers side by side beat one GPU; every function says the same of the plan, as value and as file."""
    heard = []
    plan = pesto.solve(graph, on_incumbent=heard.append, **QUICK)
    pesto.save_plan(plan, tmp_path / "p.json")
    assert [type(each) for each in heard] == [pesto.Incumbent] * len(heard) and heard
    assert pesto.load_plan(str(tmp_path / "p.json")).makespan_s == plan.makespan_s == heard[-1].makespan_s
    pesto.check(plan, graph)
    pesto.check(tmp_path / "p.json", graph, cluster="v100x2-nvlink")
    again = pesto.simulate(str(tmp_path / "p.json"), graph)
    assert (again.makespan_s, again.peak_bytes, again.fits) == (plan.makespan_s, plan.peak_bytes, True)
    assert {name: int(level.max()) for name, (_, level) in again.bytes_alive().items()} == plan.peak_bytes
    # Each tower is 0.8 ms on its GPU; the join follows on one of them.
    assert sorted(again.busy_s.values())[1:] == pytest.approx([8e-4, 8.1e-4 + 2e-4], abs=1e-9)
    assert pesto.solve(graph, start=plan, **QUICK).makespan_s <= plan.makespan_s


def test_clusters_and_costs_are_names_files_or_values(graph, tmp_path) -> None:
    """A preset's name and its value give one plan; so do a profile's file and its value, here twice as slow."""
    cluster = pesto.load_cluster("v100x2-pcie")
    named, valued = (pesto.solve(graph, cluster=c, **QUICK) for c in ("v100x2-pcie", cluster))
    assert (named.makespan_s, named.provenance.cluster) == (valued.makespan_s, valued.provenance.cluster)
    one = next(d.preset for d in cluster.devices if d.kind == "gpu")
    seconds = np.full(graph.ops, 2e-3)
    profile = pesto.Profile(
        fingerprint=graph.fingerprint(), kind="gpu", device=one, iterations=2, seconds=seconds, spread=seconds * 0,
        raw_spread=seconds * 0, source="test",
    )  # fmt: skip
    pesto.save_profile(profile, graph, tmp_path / "p.json")
    save_profile(tmp_path / "q.json", profile, graph)
    assert (tmp_path / "p.json").read_bytes() == (tmp_path / "q.json").read_bytes()
    plans = [pesto.solve(graph, costs=c, **QUICK) for c in (profile, tmp_path / "p.json")]
    assert plans[0].makespan_s == plans[1].makespan_s > 4e-3
    pesto.check(plans[0], graph, costs=profile)
    with pytest.raises(pesto.UsageError, match="give the profile"):
        pesto.check(plans[0], graph)


def test_a_comparison_has_an_entry_a_method_and_the_best_plan(graph) -> None:
    """Names as a list or with commas between; the entries are heard of as they come."""
    heard = []
    found = pesto.compare(graph, methods="single, list", on_entry=heard.append)
    assert [entry.method for entry in found.entries] == [entry.method for entry in heard] == ["single", "list"]
    assert found.best().makespan_s == min(entry.makespan_s for entry in found.entries)
    assert [e.method for e in pesto.compare(graph, methods=["list"]).entries] == ["list"]
    unfit = dataclasses.replace(
        found, entries=tuple(dataclasses.replace(e, plan=None, status="oom") for e in found.entries)
    )
    with pytest.raises(pesto.NothingFoundError, match=" - use more"):
        unfit.best()
    with pytest.raises(pesto.InfeasibleError, match="too large"):
        dataclasses.replace(unfit, proof="too large - use less").best()


def test_a_sweep_has_a_row_a_point(graph) -> None:
    """Ten times the bandwidth cannot be slower, whatever the values come as."""
    heard = []
    found = pesto.sweep(graph, links=np.array([10.0, 1]), devices=range(2, 3), on_point=heard.append, time_limit_s=0)
    slow, fast = (row.plan.makespan_s for row in found.on("links"))
    assert fast <= slow and len(heard) == 2
    assert [row.point.devices for row in found.on("devices")] == [2]


REFUSED = {
    "no graph": (lambda _: pesto.load_graph(), pesto.UsageError),
    "no such file": (lambda _: pesto.load_graph("nowhere.json"), pesto.FileError),
    "a model beside a file": (lambda _: pesto.load_graph(TOWERS, model="nmt"), pesto.UsageError),
    "no such cluster": (lambda g: pesto.solve(g, cluster="v100x3"), pesto.UsageError),
    "a number as a cluster": (lambda g: pesto.solve(g, cluster=4), pesto.UsageError),
    "a name as a graph": (lambda _: pesto.solve("nmt"), pesto.UsageError),
    "a word as a limit": (lambda g: pesto.solve(g, time_limit_s="no"), pesto.UsageError),
    "a truth as workers": (lambda g: pesto.solve(g, workers=True), pesto.UsageError),
    "a number as a start": (lambda g: pesto.solve(g, start=3), pesto.UsageError),
    "a number as costs": (lambda g: pesto.solve(g, costs=3), pesto.UsageError),
    "no such method": (lambda g: pesto.compare(g, methods=["pestoo"]), pesto.UsageError),
    "no method": (lambda g: pesto.compare(g, methods=()), pesto.UsageError),
    "no axis": (pesto.sweep, pesto.UsageError),
    "no factor": (lambda g: pesto.sweep(g, compute=["fast"]), pesto.UsageError),
    "nothing as a factor": (lambda g: pesto.sweep(g, memory=[None]), pesto.UsageError),
    "an axis as text": (lambda g: pesto.sweep(g, links="0.5,1"), pesto.UsageError),
    "a lone factor": (lambda g: pesto.sweep(g, compute=2.0), pesto.UsageError),
    "half a device": (lambda g: pesto.sweep(g, devices=[1.5]), pesto.UsageError),
    "a number as a graph's file": (lambda _: pesto.load_graph(3), pesto.UsageError),
    "a number as a model": (lambda _: pesto.load_graph(model=3), pesto.UsageError),
    "a number as a variant": (lambda _: pesto.load_graph(model="nmt", variant=3), pesto.UsageError),
    "a number as a folder": (lambda _: pesto.load_graph(saved_model=3), pesto.UsageError),
    "a function itself": (lambda _: pesto.load_graph(function=len), pesto.UsageError),
    "a text as a batch": (lambda _: pesto.load_graph(model="nmt", batch="32"), pesto.UsageError),
    "a batch of nothing": (lambda _: pesto.load_graph(model="nmt", batch=0), pesto.UsageError),
    "a number as a fetch": (lambda _: pesto.load_graph("step.pb", fetch=3), pesto.UsageError),
    "numbers as fetches": (lambda _: pesto.load_graph("step.pb", fetch=[3]), pesto.UsageError),
    "a profile of a number": (lambda _: pesto.profile(3), pesto.UsageError),
    "a number as a plan's file": (lambda _: pesto.load_plan(3), pesto.UsageError),
    "no file of a plan": (lambda _: pesto.load_plan(None), pesto.UsageError),
    "a plan to nowhere": (lambda g: pesto.save_plan(pesto.solve(g, **QUICK), None), pesto.UsageError),
    "a file as a plan": (lambda g: pesto.save_plan("x", pesto.solve(g, **QUICK)), pesto.UsageError),
    "a number as a plan": (lambda _: pesto.save_plan(3, "x"), pesto.UsageError),
    "a number as a profile": (lambda g: pesto.save_profile(3, g, "x"), pesto.UsageError),
    "a number as methods": (lambda g: pesto.compare(g, methods=3), pesto.UsageError),
    "numbers as methods": (lambda g: pesto.compare(g, methods=[3]), pesto.UsageError),
    "a number that hears of plans": (lambda g: pesto.solve(g, on_incumbent=3), pesto.UsageError),
    "a number that hears of methods": (lambda g: pesto.compare(g, on_entry=0), pesto.UsageError),
    "a number that hears of points": (lambda g: pesto.sweep(g, links=[1], on_point=3), pesto.UsageError),
    "a word for all combinations": (lambda g: pesto.sweep(g, links=[1], cross="x"), pesto.UsageError),
    "no such plan": (lambda _: pesto.load_plan("nowhere.json"), pesto.FileError),
    "a graph as a plan": (lambda _: pesto.load_plan(TOWERS), pesto.InputError),
    "one iteration": (lambda _: pesto.profile(model="nmt", iterations=1), pesto.UsageError),
    "a profile of a graph file": (lambda _: pesto.profile(TOWERS), pesto.UsageError),
    "a plan of nothing": (lambda g: pesto.check(None, g), pesto.UsageError),
    "no cpus": (lambda _: pesto.logical_cpus(0), pesto.UsageError),
    "a truth of cpus": (lambda _: pesto.logical_cpus(True), pesto.UsageError),
    "iterations as text": (lambda _: pesto.profile(model="nmt", iterations="9"), pesto.UsageError),
    "no batch": (lambda _: pesto.record(batch=0), pesto.UsageError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused_with_a_remedy(graph, name) -> None:
    """One line with a dash before the remedy, and an error that the command line would show as well."""
    call, kind = REFUSED[name]
    with pytest.raises(pesto.PestoError) as caught:
        call(graph)
    assert type(caught.value) is kind
    assert " - " in str(caught.value) and "\n" not in str(caught.value)


def test_messages_hold_for_python_and_the_command_line() -> None:
    """Outside of the command line nothing speaks of its options, but for whole commands to run."""
    found = []
    for path in (ROOT / "pesto").rglob("*.py"):
        if not path.relative_to(ROOT / "pesto").as_posix().startswith(("cli/", "research/", "service/serve/")):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings are for readers
            texts = [n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in said]
            found += [
                (path.name, t)
                for t in texts
                if isinstance(t, str) and re.search(r"(?<!pesto solve )(?<!pesto import )--[a-z]", t)
            ]
    # Options of the driver's own program, words of a whole command, what verbs that take a plan ask for, the name by
    # which the command line has an option, and a use case of the command line alone with its options' help.
    apart = {"presets.py", "solve_report.py", "load.py", "source.py", "pipeline_step.py", "verb_options.py"}
    assert [(name, text) for name, text in found if name not in apart] == []


def test_names_of_methods_may_come_from_an_iterator() -> None:
    """It is read once, however often the names are looked at."""
    assert CompareOptions(methods=(name for name in ("pesto", "expert"))).methods == ("pesto", "expert")


def test_an_axis_of_a_sweep_says_what_it_takes(graph) -> None:
    """By the argument's own name, and with values that are no list of characters."""
    with pytest.raises(pesto.UsageError, match=r"^links: '0\.5,1' is no list of values - give factors .*, in a list$"):
        pesto.sweep(graph, links="0.5,1")
    with pytest.raises(pesto.UsageError, match=r"^devices: 2 is no list .* - give whole numbers from 1 .*list$"):
        pesto.sweep(graph, devices=2)


def test_a_plan_is_refused_where_it_does_not_belong(graph, plan) -> None:
    """Another graph, a cluster without the device, a cluster that only a file described, a folder in no folder."""
    with pytest.raises(pesto.MismatchError, match="give the"):
        pesto.simulate(plan, dataclasses.replace(graph, names=tuple(f"x{n}" for n in graph.names)))
    with pytest.raises(pesto.InputError, match=r"has no gpu:\d, .* - give one"):
        pesto.simulate(plan, graph, cluster=scale_cluster(pesto.load_cluster("v100x2-nvlink"), ClusterPoint(devices=1)))
    elsewhere = dataclasses.replace(plan.provenance, cluster_source="mine.toml", cluster_origin=Origin(kind="file"))
    for function in (pesto.check, pesto.simulate):
        with pytest.raises(pesto.UsageError, match=r"'mine\.toml' - give"):
            function(dataclasses.replace(plan, provenance=elsewhere), graph)
    with pytest.raises(pesto.FileError, match=" - "):
        pesto.save_plan(plan, "no/where/plan.json")
    with pytest.raises(pesto.VerificationError):
        pesto.check(dataclasses.replace(plan, peak_bytes=dict.fromkeys(plan.peak_bytes, 1)), graph)


NASTY = "<script>alert('x')</script>\x1b[2J\n\u202e" * 20


def test_values_say_in_one_line_what_they_are(graph, plan) -> None:
    """No array, no line break, at most 120 columns, whatever the names hold: they are data."""
    cluster = pesto.load_cluster("v100x2-nvlink")
    assert repr(graph) == "Graph('two independ...rs and a join', 7 ops, 6 data + 1 control edges)"
    assert repr(cluster) == "Cluster('v100x2-nvlink', 1 cpu + 2 gpu, 6 links)"
    assert repr(plan).startswith(f"Plan(7 ops on v100x2-nvlink, {plan.makespan_s * 1e3:.2f} ms mixed, gap ")
    found = pesto.compare(graph, methods="single")
    swept = pesto.sweep(graph, links=[1], time_limit_s=0)
    made = dataclasses.replace(plan.provenance, cluster=NASTY, costs_basis=NASTY, chosen=NASTY, graph_source=NASTY)
    named = dataclasses.replace(
        cluster, name=NASTY, devices=[dataclasses.replace(d, kind=NASTY) for d in cluster.devices]
    )
    values = [
        graph, cluster, plan, found, swept, pesto.simulate(plan, graph), named,
        dataclasses.replace(graph, source=NASTY, batch=10**6), dataclasses.replace(plan, provenance=made),
        dataclasses.replace(found, cluster=named), dataclasses.replace(swept, cluster=named),
        dataclasses.replace(pesto.simulate(plan, graph), cluster=named),
    ]  # fmt: skip
    for value in values:
        text = repr(value)
        assert len(text) <= 120 and text.isprintable() and "array(" not in text
        assert text.startswith(type(value).__name__ + "(")


def test_notebooks_show_a_table_in_which_names_are_text(graph, plan) -> None:
    """One row a device with its ops, a method or a point; markup in a name stays text."""
    lanes = tuple("<b>" + name for name in plan.lane_device)
    peaks = {"<b>" + name: size for name, size in plan.peak_bytes.items()}
    made = dataclasses.replace(plan.provenance, graph_source=NASTY, cluster=NASTY, chosen=NASTY)
    hostile = dataclasses.replace(plan, lane_device=lanes, peak_bytes=peaks, provenance=made)
    shown = plan._repr_html_()
    assert shown.count("<tr>") == 1 + 3 and "gpu:1" in shown
    counts = [plan.device_names().count(name) for name in plan.peak_bytes]
    assert all(f">{count}</td>" in shown for count in counts)
    found = pesto.compare(graph, methods="single,list")
    table = found._repr_html_()
    assert table.index(">list<") < table.index(">single<")
    swept = pesto.sweep(graph, links=[1, 10], time_limit_s=0)
    rows = swept._repr_html_()
    assert rows.count("<tr>") == 1 + 2 and ">links 10x<" in rows
    assert all(f">{row.plan.makespan_s * 1e3:.2f}<" in rows for row in swept.rows)
    nowhere = dataclasses.replace(swept.rows[0], plan=None, status=NASTY)
    nasty = dataclasses.replace(swept, graph=dataclasses.replace(graph, source=NASTY), rows=(nowhere,))
    renamed = tuple(dataclasses.replace(e, method=NASTY) for e in found.entries)
    other = dataclasses.replace(found, graph=dataclasses.replace(graph, source=NASTY), entries=renamed)
    for value in (hostile, other, nasty):
        text = value._repr_html_()
        assert "<script" not in text and "<b>" not in text and text.isprintable()


def test_the_sample_program_runs(tmp_path, capsys) -> None:
    """It leaves a plan behind, and says what the plan is, what a slower link makes of it, and how each method did."""
    runpy.run_path(str(ROOT / "examples/plan_a_model.py"))["main"](TOWERS, tmp_path / "plan.json")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Graph(") and any(line.startswith("Plan(7 ops") for line in said)
    assert {"single", "expert", "list"} <= {line.split()[0] for line in said if line.endswith("fits")}
    assert pesto.load_plan(tmp_path / "plan.json").names == pesto.load_graph(TOWERS).names


@pytest.mark.slow
def test_a_type_checker_knows_every_option(tmp_path) -> None:
    """`mypy --strict` passes the sample program, and names what is misspelt or of another type in copies of it."""
    good = (ROOT / "examples/plan_a_model.py").read_text()
    changes = {
        'cluster="v100x2-nvlink"': ('clustr="v100x2-nvlink"', 'Unexpected keyword argument "clustr"'),
        "time_limit_s=3": ('timelimit="no"', 'Unexpected keyword argument "timelimit"'),
        "workers=2": ('workers="two"', 'Argument "workers" to "solve" has incompatible type'),
        "pesto.sweep(": ("pesto.swept(", 'Module has no attribute "swept"'),
        "links=[0.1, 1, 10]": ("link=[0.1, 1, 10]", 'Unexpected keyword argument "link"'),
    }
    files = {tmp_path / "good.py": ""}
    (tmp_path / "good.py").write_text(good)
    for k, (old, (new, says)) in enumerate(changes.items()):
        assert good.count(old) == 1
        files[tmp_path / f"bad{k}.py"] = says
        (tmp_path / f"bad{k}.py").write_text(good.replace(old, new))
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for path, says in files.items():
        errors = [line for line in done.stdout.splitlines() if path.name in line and ": error:" in line]
        assert bool(errors) == bool(says), done.stdout + done.stderr
        assert all(says in line for line in errors)
