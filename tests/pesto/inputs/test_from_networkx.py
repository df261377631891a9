"""Graphs of networkx in and out: the same graph both ways, what its numbers mean, and what is refused."""

import logging
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pesto
from pesto.core.files import graph_file
from pesto.core.graph import Graph

TOWERS = Path(__file__).resolve().parents[2] / "data/two-towers.graph.json"
NAMES = st.text(alphabet='abé:/0 ^"\\', min_size=1, max_size=5)
BYTES = st.integers(0, 2**40)
SECONDS = st.floats(0, 1e6)
TIMED = {"seconds": 1.0}


@st.composite
def networks(draw: st.DrawFn) -> nx.MultiDiGraph:
    """A graph as `Graph.to_networkx` writes it: edges lead from earlier to later nodes, which are then shuffled."""
    kinds = draw(st.sampled_from([["cpu", "gpu"], ["gpu"], ["tpu", "cpu", "gpu"]]))
    graph = nx.MultiDiGraph(source=draw(NAMES), kinds=",".join(kinds))
    if draw(st.booleans()):
        graph.graph |= {"batch": draw(st.integers(1, 2**40)), "way": draw(st.sampled_from(["session", "function"]))}
    names = draw(st.lists(NAMES, min_size=1, max_size=7, unique=True))
    groups = draw(st.lists(st.integers(-1, 2), min_size=len(names), max_size=len(names)))
    seen = list(dict.fromkeys(group for group in groups if group >= 0))
    for name, group in zip(names, groups, strict=True):
        graph.add_node(name, **draw(ops(name, kinds)))
        if group >= 0:
            graph.nodes[name]["group"] = seen.index(group)
    place = draw(st.permutations(names))
    for k, name in enumerate(place):
        _edges_of(draw, graph, name, place[k + 1 :])
    return graph


@st.composite
def ops(draw: st.DrawFn, name: str, kinds: list[str]) -> dict[str, Any]:
    """What a node always says, and some of what it may say."""
    said: dict[str, Any] = {
        "runs_on": ",".join(draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True).map(sorted))),
        "flops": draw(st.floats(0, 1e24)), "moved_bytes": draw(BYTES), "param_bytes": draw(BYTES),
        "launches": draw(st.booleans()), "type": draw(st.sampled_from(["MatMul", "Const", "é"])),
    }  # fmt: skip
    said["runs_on"] = ",".join(kind for kind in kinds if kind in said["runs_on"].split(","))
    if "/" in name and name.rpartition("/")[0]:
        said["scope"] = name.rpartition("/")[0]
    maybe = {
        "dtype": st.sampled_from(["float16", "int32"]), "loose": st.integers(1, 3),
        "seconds_gpu": SECONDS, "seconds_V100": SECONDS,
    }  # fmt: skip
    said |= {key: draw(values) for key, values in maybe.items() if draw(st.booleans())}
    if draw(st.booleans()):
        said |= {"kernel": "matmul", "sizes": "8,16,32,1,0,1"}
    return said


def _edges_of(draw: st.DrawFn, graph: nx.MultiDiGraph, name: str, later: list[str]) -> None:
    """Outputs, some read by several, several times or by nobody, and waits."""
    made = draw(st.lists(st.tuples(BYTES, st.sampled_from(["", "float16"])), max_size=3)) if later else []
    readers = [draw(st.lists(st.sampled_from(later), max_size=3)) for _ in made]
    for output, ((size, dtype), heads) in enumerate(zip(made, readers, strict=True)):
        for head in heads:
            graph.add_edge(name, head, output=output, bytes=size, **({"dtype": dtype} if dtype else {}))
    if not all(readers):
        graph.nodes[name]["outputs"] = ",".join(str(size) for size, _ in made)
        if any(dtype for _, dtype in made):
            graph.nodes[name]["dtypes"] = ",".join(dtype for _, dtype in made)
    for head in draw(st.lists(st.sampled_from(later), max_size=2)) if later else []:
        graph.add_edge(name, head, control=True)


def parts(graph: nx.MultiDiGraph) -> tuple[Any, ...]:
    """All that a graph holds; its edges whatever their order."""
    edges = sorted((a, b, sorted(said.items())) for a, b, said in graph.edges(data=True))
    return dict(graph.graph), {name: dict(said) for name, said in graph.nodes(data=True)}, edges


@given(networks())
def test_from_networkx_and_back(network: nx.MultiDiGraph) -> None:
    """Every node, edge and attribute comes back; the graph, too, and from a graph file as well."""
    graph = pesto.graph_from_networkx(network)
    assert parts(graph.to_networkx()) == parts(network)
    again = pesto.graph_from_networkx(graph.to_networkx())
    assert again.fingerprint() == graph.fingerprint() and again.listing() == graph.listing()
    kept = graph_file.loads(graph_file.dumps(graph), "x")
    assert parts(kept.to_networkx()) == parts(network)


@pytest.mark.parametrize("model", [None, "rnnlm"])
def test_a_real_graph_comes_back(model: str | None) -> None:
    """The same fingerprint and listing, and all that these do not count."""
    graph = pesto.load_graph(model=model, variant="tiny") if model else pesto.load_graph(TOWERS)
    again = pesto.graph_from_networkx(graph.to_networkx())
    assert (again.fingerprint(), again.listing()) == (graph.fingerprint(), graph.listing())
    for name in ("names", "source", "origin", "batch", "way", "kinds"):
        assert getattr(again, name) == getattr(graph, name)
    for name in ("kernels", "loose", "runs_on", "given_s"):
        assert np.array_equal(getattr(again, name), getattr(graph, name), equal_nan=name == "given_s")
    types = [[(*each.dtypes, "")[k] for k in each.tensor_dtype] for each in (again, graph)]
    assert types[0] == types[1]
    assert model is None or graph.kernels.any()


def test_it_is_loaded_when_it_is_used() -> None:
    """Neither the face nor a solve of a file loads networkx; the two ways in and out do."""
    code = (
        "import sys, pesto; pesto.graph_from_networkx; g = pesto.load_graph(sys.argv[1]); "
        "print('networkx' in sys.modules); g.to_networkx(); print('networkx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, TOWERS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def dag(nodes: dict[Any, Any], edges: list[Any] = (), kind: Any = nx.DiGraph, **said: Any) -> Any:
    graph = kind(**said)
    graph.add_nodes_from(nodes.items())
    graph.add_edges_from(edges)
    return graph


def seconds(graph: Graph, name: str) -> dict[str, float]:
    row = graph.given_s[graph.names.index(name)].tolist()
    return {kind: s for kind, s in zip(graph.given_kinds, row, strict=True) if not math.isnan(s)}


PAIR = dag({"a": {"w": 2, "w_cpu": 3.0, "mem": 7}, "b": {"w": "0.5", "w_V100": 0.25}}, [("a", "b", {"n": 10.0})])
SIZES = {"bytes": "n"}


@pytest.mark.parametrize(
    "durations",
    [
        "w",
        {"a": {"cpu": 3.0, "gpu": 2.0}, "b": {"cpu": 0.5, "gpu": 0.5, "V100": 0.25}},
        lambda node, said: (
            {key[2:] or "gpu": float(s) for key, s in said.items() if key.startswith("w_")}
            | ({"gpu": 2.0} if node == "a" else {"gpu": 0.5, "cpu": 0.5})
        ),
    ],
    ids=["attribute", "mapping", "function"],
)
def test_times_by_attribute_mapping_or_function(durations: Any) -> None:
    """One time for every kind, and others for a kind or a preset beside it."""
    graph = pesto.graph_from_networkx(PAIR, durations=durations, **SIZES)
    assert seconds(graph, "a") == {"cpu": 3.0, "gpu": 2.0}
    assert seconds(graph, "b") == {"cpu": 0.5, "gpu": 0.5, "V100": 0.25}


@pytest.mark.parametrize("sizes", ["n", {("a", "b"): 10}, lambda *edge: edge[2]["n"]])
def test_bytes_by_attribute_mapping_or_function(sizes: Any) -> None:
    """Whole floats are bytes."""
    graph = pesto.graph_from_networkx(PAIR, durations="w", bytes=sizes, memory="mem")
    assert graph.tensor_bytes.tolist() == [10] and graph.param_bytes.tolist() == [7, 0]


def test_kinds_come_from_what_is_said_else_from_times() -> None:
    """A list, a string, the kinds of its times, or every kind."""
    nodes = {
        "a": {"runs_on": ["gpu"]} | TIMED,
        "b": {"runs_on": "cpu, tpu"} | TIMED,
        "c": {"seconds_V100": 1},
        4: TIMED,
    }
    graph = pesto.graph_from_networkx(dag(nodes))
    assert graph.kinds == ("cpu", "gpu", "tpu") and graph.names == ("a", "b", "c", "4")
    runs = [[kind for kind, there in zip(graph.kinds, row, strict=True) if there] for row in graph.runs_on.tolist()]
    assert runs == [["gpu"], ["cpu", "tpu"], ["gpu"], ["cpu", "gpu", "tpu"]]


def test_edges_carry_their_own_tensor_or_share_one(caplog: pytest.LogCaptureFixture) -> None:
    """Without outputs one each, parallel ones added, which is said; with equal outputs one for all."""
    nodes = dict.fromkeys("abc", TIMED)
    pairs = [("a", "b", {"bytes": 3}), ("a", "b", {"bytes": 4}), ("a", "c", {"bytes": 7})]
    with caplog.at_level(logging.WARNING, "pesto"):
        apart = pesto.graph_from_networkx(dag(nodes, pairs, nx.MultiDiGraph))
    assert apart.tensor_bytes.tolist() == [7, 7] and len(apart.src) == 2
    assert "bytes added: 1 were added to others, as edge a -> b" in caplog.text
    shared = [(a, b, {"output": "x", "bytes": 7}) for a, b in ("ab", "ab", "ac")]
    graph = pesto.graph_from_networkx(dag(nodes, shared, nx.MultiDiGraph))
    assert graph.tensor_bytes.tolist() == [7] and len(graph.src) == 3


CHAIN = [("a", "b", {"bytes": 1}), ("b", "c", {"bytes": 1})]
THREE = dict.fromkeys("abc", TIMED)
REFUSED = {
    "cycle": (dag(THREE, [*CHAIN, ("c", "a", {"bytes": 1})]), {}, r"a cycle of 3 ops: .*a -> b.* - remove one"),
    "loop": (dag(THREE, [("a", "a", {"bytes": 1})]), {}, "edge a -> a: node 'a' waits for itself - remove the edge"),
    "no time": (dag({"a": {"w": 1}}), {}, "node 'a': its time is missing: .*but w - set it, or name .* as durations"),
    "no time of a mapping": (dag(THREE), {"durations": {"a": 1, "b": 2}}, "node 'c': its time is missing"),
    "no time on a kind": (dag({"a": {"seconds_gpu": 1, "runs_on": "cpu,gpu"}}), {}, "on cpu.* - give 'seconds_cpu'"),
    "no bytes": (dag(THREE, [("a", "b")]), {}, "edge a -> b: its bytes are missing.* - set them"),
    "misspelt": (dag({"a": {"weight": 1}}), {"durations": "wieght"}, "'wieght', given as durations - did you mean we"),
    "no such memory": (dag(THREE), {"memory": "mem"}, "'mem', given as memory"),
    "negative time": (dag({"a": {"seconds": -1}}), {}, "node 'a': its time is -1 - give a number from 0"),
    "NaN": (dag({"a": {"seconds": math.nan}}), {}, "node 'a': its time is nan - give"),
    "infinite": (dag({"a": {"seconds": math.inf}}), {}, "node 'a': its time is inf - give"),
    "no number": (dag({"a": {"seconds": "fast"}}), {}, "node 'a': its time is 'fast', which is no"),
    "a truth": (dag({"a": {"seconds": True}}), {}, "its time is True, which is no number"),
    "negative bytes": (dag(THREE, [("a", "b", {"bytes": -1})]), {}, "edge a -> b: its number of bytes is -1 - give"),
    "NaN bytes": (dag(THREE, [("a", "b", {"bytes": math.nan})]), {}, "edge a -> b: its number of bytes is nan"),
    "a fraction": (dag(THREE, [("a", "b", {"bytes": 0.5})]), {}, "edge a -> b: its number of bytes is 0.5 - give"),
    "too many bytes": (dag(THREE, [("a", "b", {"bytes": 2**70})]), {}, "edge a -> b: .*from 0 to 2\\*\\*62"),
    "bytes in sum": (
        dag(THREE, [("a", "b", {"bytes": 2**62}), ("a", "c", {"bytes": 2**62})]), {}, "exceed 2\\*\\*62 - check",
    ),
    "negative memory": (dag({"a": TIMED | {"param_bytes": -1}}), {}, "node 'a': its number of bytes that stay is -1"),
    "two of a name": (dag({"1": TIMED, 1: TIMED}), {}, "nodes '1' and 1 are both called 1 - rename"),
    "no name": (dag({"": TIMED}), {}, "node '': the name is empty - give it one"),
    "a line break": (dag({"a\nb": TIMED}), {}, "holds a control character - take it out"),
    "empty": (nx.DiGraph(), {}, "the graph has no nodes - add at least one"),
    "undirected": (nx.Graph([("a", "b")]), {}, "undirected.* - make it a networkx.DiGraph"),
    "unknown kind": (dag(THREE), {"durations": lambda _, __: {"gpuu": 1}}, "'gpuu', no kind.* did you mean gpu"),
    "no kind": (dag({"a": TIMED | {"runs_on": ""}}), {}, "may run on no kind of device - give one"),
    "a failing function": (dag(THREE), {"durations": lambda _, said: said["w"]}, "node 'a': .*KeyError: 'w' - correct"),
    "an output's bytes": (
        dag(THREE, [("a", "b", {"bytes": 1, "output": 0}), ("a", "c", {"bytes": 2, "output": 0})]), {},
        "edge a -> c: output 0 has 2 bytes, 1 on edge a -> b - give both",
    ),
    "an output beyond": (
        dag(THREE | {"a": TIMED | {"outputs": "1"}}, [("a", "b", {"bytes": 1, "output": 1})]), {},
        "node 'a': an edge carries output 1, its 'outputs' lists 1",
    ),
    "an output below 0": (dag(THREE, [("a", "b", {"bytes": 1, "output": -1})]), {}, "its output is -1 - give"),
    "a wait": (dag(THREE, [("a", "b", {"control": "maybe"})]), {}, "edge a -> b: control is 'maybe' - give true"),
    "a kernel": (dag({"a": TIMED | {"kernel": "mm"}}), {}, "node 'a'.kernel: no form is named 'mm'.*known"),
    "a way": (dag(THREE, way="x"), {}, "way is 'x' - give one of session, function"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_planned_is_refused(case: str) -> None:
    """One line: the node or edge, what is wrong with it, and a remedy."""
    graph, options, text = REFUSED[case]
    with pytest.raises(pesto.InputError, match=text) as refused:
        pesto.graph_from_networkx(graph, **options)
    assert "\n" not in str(refused.value) and " - " in str(refused.value)


@pytest.mark.parametrize(("graph", "options"), [([1], {}), (dag(THREE), {"durations": 3}), (dag(THREE), {"source": 3})])
def test_what_is_of_another_type_is_a_usage_error(graph: Any, options: Any) -> None:
    """The argument and what to give."""
    with pytest.raises(pesto.UsageError, match=r"is (\[1\]|3) - give"):
        pesto.graph_from_networkx(graph, **options)


def test_a_comma_in_a_kind_keeps_a_graph_in(make_graph: Any) -> None:
    """Kinds are written with commas between."""
    graph = pesto.graph_from_networkx(dag({"a": TIMED | {"runs_on": ["g,pu"]}}))
    with pytest.raises(pesto.InputError, match=r"'g,pu' has a comma.* - rename"):
        graph.to_networkx()


def training_step(layers: int) -> nx.DiGraph:
    """Readers on the CPU, weights of 4 GiB read forward and updated backward, kernels of several lengths."""
    graph = nx.DiGraph()
    for k in range(layers):
        graph.add_node(f"read{k}", seconds_cpu=(7 + k) * 1e-4, runs_on="cpu")  # none ask for a link at one instant
        graph.add_node(f"forward{k}", seconds={0: 4e-3, 1: 6e-3}[k % 2], runs_on="gpu", param_bytes=4 << 30, group=k)
        graph.add_node(f"update{k}", seconds_gpu=2e-3, seconds_cpu=9e-3, group=k)
        graph.add_edge(f"read{k}", f"forward{k}", bytes=1 << 20)
        graph.add_edge(f"forward{k}", f"update{k}", bytes=1 << 22)
        if k:
            graph.add_edge(f"forward{k - 1}", f"forward{k}", bytes=1 << 22)
            graph.add_edge(f"update{k}", f"update{k - 1}", control=True)
    return graph


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_a_small_dag_is_planned_on_clusters(gpus: int) -> None:
    """No coarsening: kinds, groups and memory hold, every method answers, and the plan checks and simulates."""
    graph = pesto.graph_from_networkx(training_step(6))
    cluster = "v100x2-nvlink" if gpus == 2 else f"v100x{gpus}"
    plan = pesto.solve(graph, cluster=cluster, time_limit_s=1, deterministic=True, workers=2)
    where = dict(zip(plan.names, plan.device_names(), strict=True))
    assert all(where[f"read{k}"] == "cpu:0" for k in range(6))
    assert all(where[f"forward{k}"] == where[f"update{k}"] != "cpu:0" for k in range(6))
    pesto.check(plan, graph)
    assert pesto.simulate(plan, graph).makespan_s == pytest.approx(plan.makespan_s)
    entries = pesto.compare(graph, cluster=cluster, methods="single,etf,list", time_limit_s=1).entries
    fitting = [entry.makespan_s for entry in entries if entry.plan is not None]
    assert fitting and plan.makespan_s <= min(fitting)


def test_memory_spreads_a_dag_or_refuses_it() -> None:
    """24 GiB of weights need two GPUs of 16 GiB; 48 GiB are more than both have, which is proven."""
    graph = pesto.graph_from_networkx(training_step(6))
    plan = pesto.solve(graph, cluster="v100x2-nvlink", time_limit_s=1, solver="list", search=False)
    sizes = {device.name: device.memory_bytes for device in pesto.load_cluster("v100x2-nvlink").devices}
    assert all(peak <= sizes[name] for name, peak in plan.peak_bytes.items())
    assert min(plan.peak_bytes["gpu:0"], plan.peak_bytes["gpu:1"]) >= 8 << 30
    with pytest.raises(pesto.InfeasibleError):
        pesto.solve(pesto.graph_from_networkx(training_step(12)), cluster="v100x2-nvlink", time_limit_s=1)
