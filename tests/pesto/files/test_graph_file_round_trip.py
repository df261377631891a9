import json
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import numpy as np
import pytest

from pesto.errors import InputError
from pesto.files import graph_file
from pesto.graph import Graph

SCHEMA = json.loads(resources.files("pesto").joinpath("schema/graph-1.json").read_text())


def random_graph(rng: np.random.Generator, ops: int) -> Graph:
    """A graph with everything in it: several outputs, multi-edges, odd names, groups, NaN times, random edge order."""
    produced = rng.integers(0, 4, ops)
    tensor_op = np.repeat(np.arange(ops), produced)
    place = rng.permutation(ops)  # an order in which the edges point forwards, unlike the order of the ops
    pairs = rng.integers(0, ops, (3 * ops, 2))
    pairs = pairs[place[pairs[:, 0]] < place[pairs[:, 1]]]
    data = pairs[(produced[pairs[:, 0]] > 0) & (rng.random(len(pairs)) < 0.7)]
    control = pairs[rng.random(len(pairs)) < 0.2]
    first = np.searchsorted(tensor_op, np.arange(ops))
    stems, ends = rng.choice(["a/b", "é", "x y", "^c", '"q"', "😀"], ops), rng.choice(["", ":0", ":1"], ops)
    names = [f"{stem}_{i}{end}" for i, (stem, end) in enumerate(zip(stems, ends, strict=True))]
    kinds = ("gpu", "tpu", "cpu")[: int(rng.integers(1, 4))]
    runs_on = rng.random((ops, len(kinds))) < 0.6
    runs_on[~runs_on.any(axis=1), 0] = True
    return Graph(
        names=tuple(names), types=("MatMul", "", "never used"), type_of=rng.integers(0, 2, ops),
        tensor_op=tensor_op, tensor_bytes=rng.integers(0, 2**40, len(tensor_op)),
        src=data[:, 0], dst=data[:, 1], tensor=first[data[:, 0]] + rng.integers(0, produced[data[:, 0]]),
        control_src=control[:, 0], control_dst=control[:, 1], group=rng.integers(-1, 4, ops),
        kinds=kinds, runs_on=runs_on, param_bytes=rng.integers(0, 2, ops) * 2**40, flops=rng.random(ops) * 1e12,
        moved_bytes=rng.integers(0, 3, ops), launches=rng.random(ops) < 0.5, given_kinds=("V100", "gpu"),
        given_s=np.where(rng.random((ops, 2)) < 0.5, rng.random((ops, 2)), np.nan), source="random",
    )  # fmt: skip


def test_round_trip_of_random_graphs():
    """Saving and loading keeps the fingerprint and every column; the schema agrees with what is written."""
    rng = np.random.default_rng(3)
    for ops in [1, 2, 3, 10, 40] * 4:
        g = random_graph(rng, ops)
        data = graph_file.dumps(g)
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(data))
        again = graph_file.loads(data, "x")
        assert again.fingerprint() == g.fingerprint()
        assert data.count(b"\n") == ops + 2  # one op a line, between the head and the end
        assert graph_file.dumps(graph_file.loads(graph_file.dumps(again), "x")) == graph_file.dumps(again)
        for name in ("names", "kinds", "source"):
            assert getattr(again, name) == getattr(g, name)
        for name in ("tensor_op", "tensor_bytes", "runs_on", "param_bytes", "flops", "moved_bytes", "launches"):
            assert np.array_equal(getattr(again, name), getattr(g, name)), name
        order = np.argsort(g.dst, kind="stable")
        assert np.array_equal(again.tensor, g.tensor[order])
        for k, kind in enumerate(again.given_kinds):
            assert np.array_equal(again.given_s[:, k], g.given_s[:, g.given_kinds.index(kind)], equal_nan=True)


def test_the_batch_is_kept():
    """An optional key: written when there is one, absent otherwise, and agreed on by the schema."""
    g = replace(random_graph(np.random.default_rng(5), 10), batch=32)
    document = json.loads(graph_file.dumps(g))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["batch"] == 32 and graph_file.loads(graph_file.dumps(g), "x").batch == 32
    assert "batch" not in json.loads(graph_file.dumps(replace(g, batch=None)))
    assert graph_file.loads(graph_file.dumps(replace(g, batch=None)), "x").batch is None


@pytest.mark.parametrize("batch", [0, -1, 1.5, "32", True, 2**63])
def test_a_batch_is_a_positive_integer(batch):
    """The reader and the schema refuse the same values."""
    document = {"format": "pesto-graph", "format_version": 1, "batch": batch, "ops": [{"name": "a"}]}
    with pytest.raises(InputError, match="batch"):
        graph_file.loads(json.dumps(document).encode(), "x")
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


@pytest.mark.parametrize("shape", ["chain", "star", "fan_in", "multi"])
def test_large_shapes(shape):
    """100 000 ops in a chain, a star or into one sink, and as many edges between two ops, keep their structure."""
    n = 100_000
    ops: list[Any] = [{"name": f"o{i}", "outputs": [8]} for i in range(2 if shape == "multi" else n)]
    if shape == "multi":
        ops[1]["inputs"] = ["o0"] * n
    elif shape == "fan_in":
        ops[0]["inputs"] = [f"o{i}" for i in range(1, n)]
    else:
        for i in range(1, n):
            ops[i]["inputs"] = [f"o{i - 1 if shape == 'chain' else 0}"]
    g = graph_file.loads(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}).encode(), "x")
    assert len(g.src) == (n if shape == "multi" else n - 1)
    again = graph_file.loads(graph_file.dumps(g), "x")
    assert np.array_equal(again.src, g.src)
    assert np.array_equal(again.dst, g.dst)
