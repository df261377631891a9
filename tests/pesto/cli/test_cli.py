"""The command line as a user meets it: exit codes, one line of error, one object of JSON, nothing half-written."""

import json
import subprocess
import sys
from pathlib import Path

import forked
import pytest

OP = {"name": "a", "outputs": [8], "time_s": {"gpu": 1e-3, "cpu": 1e-3}}
GRAPH = {
    "format": "pesto-graph",
    "format_version": 1,
    "source": "two branches",
    "ops": [
        OP,
        {**OP, "name": "b", "inputs": ["a"]},
        {**OP, "name": "c", "inputs": ["a"]},
        {**OP, "name": "d", "inputs": ["b", "c"], "outputs": []},
    ],
}


def pesto(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return forked.run("pesto", *arguments, cwd=cwd)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(GRAPH))
    return path


def test_help_is_quick_because_it_loads_neither_tensorflow_nor_a_solver() -> None:
    """The command line's own imports are few; the heavy ones come with the verb that needs them."""
    code = "import sys, pesto.cli.main; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"tensorflow", "ortools", "pulp", "numba", "numpy", "networkx"}
    assert not heavy & set(done.stdout.split())


def test_solve_check_simulate_a_graph_file_without_tensorflow(graph: Path, tmp_path: Path) -> None:
    """b and c in parallel: 3 ms and two transfers at most, against 4 ms on one GPU; everything agrees on it."""
    done = pesto("solve", "--graph", graph, "--time-limit", "600", "--json", "--out", tmp_path / "p.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {
        "makespan_s", "lower_bound_s", "gap", "status", "chosen", "candidates", "ops", "coarse_ops", "devices",
        "peak_bytes", "stages_s", "plan", "ties",
    } <= set(said)  # fmt: skip
    assert {"single", "expert", "list", "coarse"} <= set(said["candidates"])
    assert said["candidates"]["single"] == pytest.approx(4e-3)
    # c waits 40.771 us for a's tensor; b's crosses while c still computes.
    assert said["makespan_s"] == pytest.approx(3e-3 + 40.771e-6, rel=1e-5)
    assert said["lower_bound_s"] <= said["makespan_s"]
    checked = pesto("check", tmp_path / "p.json", "--graph", graph, cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    curve = tmp_path / "bytes.csv"
    again = pesto("simulate", tmp_path / "p.json", "--graph", graph, "--memory", curve, "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["makespan_s"] == said["makespan_s"]
    rows = [line.split(",") for line in curve.read_text().splitlines()[1:]]
    highest = {name: max(int(size) for of, _, size in rows if of == name) for name in said["devices"]}
    assert highest == said["peak_bytes"]
    slower = pesto(
        "simulate", tmp_path / "p.json", "--graph", graph, "--cluster", "v100x2-pcie", "--json", cwd=tmp_path
    )
    assert json.loads(slower.stdout)["makespan_s"] != said["makespan_s"]


def test_import_writes_a_graph_that_solves_the_same(graph: Path, tmp_path: Path) -> None:
    """pesto import of a graph file is the same graph again."""
    done = pesto("import", "--graph", graph, "-o", tmp_path / "again.json.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    solve = ("solve", "--time-limit", "0.5", "--json", "-q", "--graph")
    first, second = (json.loads(pesto(*solve, g, cwd=tmp_path).stdout) for g in (graph, tmp_path / "again.json.gz"))
    assert first["makespan_s"] == second["makespan_s"]


@pytest.mark.parametrize("verb", ["models", "clusters", "solvers", "studies"])
def test_the_lists_have_a_json_form(verb: str, tmp_path: Path) -> None:
    """Each list is one object with one key, and not empty."""
    done = pesto(verb, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[verb]
    assert pesto(verb, cwd=tmp_path).stdout.strip()


BAD = {
    "no graph named": ((), 2, "give --model NAME"),
    "two graphs named": (("--model", "nmt", "--graph", "{graph}"), 2, "several graphs"),
    "unknown option": (("--grahp", "{graph}"), 2, "No such option"),
    "unknown cluster": (("--graph", "{graph}", "--cluster", "v100x3"), 2, "v100x4"),
    "unknown solver": (("--graph", "{graph}", "--solver", "cplexx"), 2, "cpsat"),
    "unknown model": (("--model", "ntm"), 2, "nmt"),
    "unknown variant": (("--model", "nmt", "--variant", "2x1025"), 2, "2x1024"),
    "negative limit": (("--graph", "{graph}", "--time-limit", "-3"), 2, "write 60"),
    "gap above one": (("--graph", "{graph}", "--gap", "7"), 2, "fraction"),
    "missing graph": (("--graph", "nowhere.json"), 8, "nowhere.json"),
    "graph is a folder": (("--graph", "."), 8, "folder"),
    "fetch of a graph file": (("--graph", "{graph}", "--fetch", "a"), 2, "GraphDef"),
    "out is a folder": (("--graph", "{graph}", "--out", "."), 8, "folder"),
    "out in no folder": (("--graph", "{graph}", "--out", "no/where.json"), 8, "no/where.json"),
    "module missing": (("--function", "no_such_module:step"), 2, "no_such_module"),
    "function without a colon": (("--function", "step"), 2, "module:callable"),
    "outputs coincide": (("--graph", "{graph}", "--out", "x.json", "--part", "x.json"), 2, "named twice"),
    "output is the input": (("--graph", "{graph}", "--out", "{graph}"), 2, "named twice"),
    "json beside a plan on stdout": (("--graph", "{graph}", "--out", "/dev/stdout", "--json"), 2, "one object"),
    "saved model missing": (("--saved-model", "nowhere"), 8, "nowhere"),
}


def refused(arguments: tuple[object, ...], code: int, says: str, folder: Path) -> None:
    """Hold a solve to one line of error, the exit code, and no new file."""
    before = set(folder.iterdir())
    done = pesto("solve", "-q", *arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("pesto: ") and " - " in done.stderr, (
        done.stderr
    )
    assert json.loads(done.stdout)["exit_code"] == code if "--json" in arguments else done.stdout == ""
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("name", BAD)
def test_bad_options_get_one_line_and_their_exit_code(name: str, graph: Path, tmp_path: Path) -> None:
    """One clear line, the documented code, no traceback, no plan file."""
    arguments, code, says = BAD[name]
    refused(tuple(a.format(graph=graph) for a in arguments), code, says, tmp_path)


CONTENT = {
    "empty file": (b"", 3, "empty"),
    "truncated": (json.dumps(GRAPH).encode()[:100], 3, ""),
    "wrong format": ({"format": "something"}, 3, "format"),
    "future version": ({"format_version": 2}, 3, "version"),
    "a cycle": ({"ops": [{**OP, "inputs": ["z"]}, {**OP, "name": "z", "inputs": ["a"]}]}, 3, "cycle"),
    "dangling input": ({"ops": [{**OP, "inputs": ["ghost"]}]}, 3, "ghost"),
    "duplicate names": ({"ops": [OP, OP]}, 3, "a"),
    "negative time": ({"ops": [{**OP, "time_s": {"gpu": -1}}]}, 3, "time_s"),
    "NaN": (json.dumps(GRAPH).replace("0.001", "NaN").encode(), 3, ""),
    "huge number": ({"ops": [{**OP, "outputs": [2**70]}]}, 3, "outputs"),
    "control characters": ({"ops": [{**OP, "name": "a\u0001"}]}, 3, ""),
    "deep nesting": (b"[" * 1000 + b"]" * 1000, 3, ""),
    "flops beyond any machine": ({"ops": [{"name": "a", "flops": 1e24}]}, 3, "flops"),
    "years of work": ({"ops": [{**OP, "name": f"a{k}", "time_s": {"gpu": 1e6}} for k in range(6000)]}, 3, "units"),
    "no device": ({"ops": [{**OP, "runs_on": ["tpu"]}]}, 3, "tpu"),
    "too large for the memory": ({"ops": [{**OP, "param_bytes": 2**40}]}, 4, "GiB"),
}


@pytest.mark.parametrize("name", CONTENT)
def test_bad_graph_files_get_one_line_and_their_exit_code(name: str, tmp_path: Path) -> None:
    """As above, for what is inside the file."""
    content, code, says = CONTENT[name]
    path = tmp_path / "edited.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps({**GRAPH, **content}).encode())
    refused(("--graph", path), code, says, tmp_path)
