"""Compiling ahead, and how functions are compiled."""

import ast
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import pesto
import solvers
from pesto.cli.verbs import doctor
from pesto.verbs.compiling.parts import PARTS

_TAKES_ANY = ("kernel", "routine", "spliced", "njit")
_INNER = ("inlined", "subkernel", "subroutine")


def _decorators(node: ast.FunctionDef) -> set[str]:
    named = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return {d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "") for d in named}


@cache
def _functions() -> list[tuple[Path, ast.Module, ast.FunctionDef]]:
    files = [f for package in (pesto, solvers) for f in Path(package.__path__[0]).rglob("*.py")]
    trees = [(file, ast.parse(file.read_text())) for file in files]
    return [(file, tree, n) for file, tree in trees for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]


@pytest.mark.slow
def test_python_calls_nothing_that_only_compiled_functions_may_call() -> None:
    """A function without a wrapper for Python, called from Python, is a jump to address 0: no test could report it."""
    functions = _functions()
    inner = {(file.stem, f.name) for file, _, f in functions if _decorators(f) & set(_INNER)}
    assert len(inner) > 50
    known = {file: {(file.stem, name): name for _, name in inner} for file, _, _ in functions}
    for file, tree in {file: tree for file, tree, _ in functions}.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                known[file] |= {(node.module.split(".")[-1], a.name): a.asname or a.name for a in node.names}
    for file, _, f in functions:
        if _decorators(f) & {*_TAKES_ANY, *_INNER}:
            continue
        names = {known[file][key] for key in inner & set(known[file])}
        calls = [n.func for n in ast.walk(f) if isinstance(n, ast.Call)]
        called = {c.id for c in calls if isinstance(c, ast.Name)}
        assert not called & names, (file, f.name)
        owned = {(c.value.id, c.attr) for c in calls if isinstance(c, ast.Attribute) and isinstance(c.value, ast.Name)}
        assert not owned & inner, (file, f.name)


@pytest.mark.slow
def test_what_python_calls_returns_no_named_tuple() -> None:
    """numba would make it by a call of Python, and takes the process down where a signal ends that."""
    files = {file: tree for file, tree, _ in _functions()}
    classes = [n for tree in files.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    named = {each.name for each in classes if "NamedTuple" in {getattr(base, "id", "") for base in each.bases}}
    assert {"Labels", "Knots"} < named
    for file, _, f in _functions():
        if _decorators(f) & {*_TAKES_ANY} and f.returns is not None:
            assert not {n.id for n in ast.walk(f.returns) if isinstance(n, ast.Name)} & named, (file, f.name)


@pytest.mark.slow
def test_what_is_spliced_is_called_once() -> None:
    """With more calls it would be compiled once for each: no other compiled function, and no line but one, names it."""
    functions = [(file, f) for file, _, f in _functions() if _decorators(f) & {*_TAKES_ANY, *_INNER}]
    spliced = {(file, f.name) for file, f in functions if "spliced" in _decorators(f)}
    assert len(spliced) > 30
    known = {file: _imports(file) for file in {file for file, _ in functions}}
    named = [(file, Counter(n.id for n in ast.walk(f) if isinstance(n, ast.Name))) for file, f in functions]
    for file, name in spliced:
        calls = [names[name] for other, names in named if other == file or (file.stem, name) in known[other]]
        assert sum(calls) == 1, (file, name)


def _imports(file: Path) -> set[tuple[str, str]]:
    nodes = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.ImportFrom) and n.module]
    return {(str(n.module).split(".")[-1], a.name) for n in nodes for a in n.names}


@pytest.mark.slow
def test_all_that_a_solve_needs_is_compiled() -> None:
    """After `compile_all`, solves of another graph compile nothing in this process: no new signature of any kernel.

    The other graph is a tree with a chain through it, read from text, on GPUs that are joined otherwise, and that have
    less memory than it needs on one of them.
    """
    code = """
import gc, json
from dataclasses import replace
from numba.core.registry import CPUDispatcher
from pesto.verbs.compiling.parts import compile_all
from pesto.core.files.graph_file import loads
from pesto.planning.solving.flow import solve
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.core.settings import Settings
def known():
    return {(d.py_func.__qualname__, s) for d in gc.get_objects() if isinstance(d, CPUDispatcher) for s in d.overloads}
compile_all()
before = known()
ops = [{"name": f"o{k}", "type": "A", "inputs": [f"o{j}" for j in sorted({k // 2, k - 1} - {k, -1})],
        "outputs": [4096 * k], "flops": 1e9 + k} for k in range(40)]
document = {"format": "pesto-graph", "format_version": 1, "source": "test", "ops": ops}
graph = loads(json.dumps(document).encode(), "test")
cluster, quick = load_cluster("v100x2-nvlink"), Settings(time_limit_s=5, solver="list")
found = solve(graph, cluster, load_costs(graph, cluster, None), quick, lambda _: None)
most = int(found.candidates["single"].peak.max()) * 8 // 10
less = replace(cluster, devices=tuple(replace(d, memory_bytes=min(d.memory_bytes, most)) for d in cluster.devices))
found = solve(graph, less, load_costs(graph, less, None), quick, lambda _: None)
assert found.candidates["repaired"] is not None
print(sorted(str(k) for k in known() - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_all_that_the_first_plan_needs_is_compiled_first() -> None:
    """After these parts, a solve with no time left, and one of the rules that people use, compile nothing."""
    code = """
import gc, math
from numba.core.registry import CPUDispatcher
from pesto.verbs.compiling.parts import PARTS, Tiny, run
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.core.settings import Settings
from pesto.planning.solving import flow
from pesto.planning.solving.background_compiler import FIRST, compile_in_process
def known():
    return {(d.py_func.__qualname__, s) for d in gc.get_objects() if isinstance(d, CPUDispatcher) for s in d.overloads}
tiny = Tiny.make()
for name in FIRST:
    run(name, tiny)
before = known()
cluster = load_cluster("v100x2-nvlink")
case = tiny.graph, cluster, load_costs(tiny.graph, cluster, None), Settings(), lambda _: None
with compile_in_process():
    for spent, made in ((math.inf, 1), (0.0, 3)):
        def begin(*given):
            tracker = real(*given)
            past = tracker.deadlines.past
            tracker.deadlines.past = lambda share: past(share) or len(tracker.candidates) == made
            return tracker
        real, flow.begin_solve = flow.begin_solve, begin
        found = flow.solve(*case, flow.EarlierPlans(spent_s=spent))
        flow.begin_solve = real
        assert sum(each is not None for each in found.candidates.values()) == made
print(sorted(str(k) for k in known() - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_doctor_names_the_version_of_cbc_beside_pulps(monkeypatch) -> None:
    """PuLP brings a program of another version than its own."""
    monkeypatch.setattr(doctor, "_check_solvers", dict)
    monkeypatch.setattr(doctor, "check_tensorflow", lambda: "ok")
    monkeypatch.setattr("solvers.milp.vendors.cbc.version", lambda: "2.10.77")
    said = json.loads(CliRunner().invoke(doctor.doctor_command, ["--json"]).output)
    assert said["versions"]["CBC"] == "2.10.77" != said["versions"]["PuLP"]


def test_doctor_compiles_when_it_is_told_to(monkeypatch) -> None:
    """`--compile` waits for every part, before the checks; without it nothing is compiled ahead."""
    calls: list[str] = []
    monkeypatch.setattr(
        doctor, "shared_compiler", lambda: SimpleNamespace(need=lambda *parts: calls.append(f"{len(parts)}"))
    )
    monkeypatch.setattr(doctor, "_check_solvers", lambda: calls.append("check") or {})
    monkeypatch.setattr(doctor, "check_tensorflow", lambda: "ok")
    assert CliRunner().invoke(doctor.doctor_command, []).exit_code == 0
    assert calls == ["check"]
    assert CliRunner().invoke(doctor.doctor_command, ["--compile"]).exit_code == 0
    assert calls == ["check", f"{len(PARTS)}", "check"]
