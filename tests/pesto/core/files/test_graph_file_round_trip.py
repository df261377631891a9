import json
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.core.files import graph_file
from pesto.core.graph import BOUND, BRANCHED, CONV, LOOP, MATMUL, MEANT, Graph

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


@pytest.mark.slow
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


def test_kernels_survive_and_do_not_count() -> None:
    """Forms and sizes come back; the fingerprint and old files are as before."""
    plain = random_graph(np.random.default_rng(6), 5)
    rows = np.zeros((5, 12), dtype=int)
    rows[0, :7] = [MATMUL, 128, 4096, 1024, 1, 0, 1]
    rows[1] = [CONV, 32, 3, 224, 224, 64, 7, 7, 2, 2, 112, 112]
    rows[3, :2] = [LOOP, 0]
    made = replace(plain, kernels=rows)
    data = graph_file.dumps(made)
    jsonschema.validate(json.loads(data), SCHEMA)
    again = graph_file.loads(data, "x")
    assert again.kernels.tolist() == rows.tolist()
    assert again.fingerprint() == plain.fingerprint() and again.listing() == plain.listing()
    assert b"sizes" not in graph_file.dumps(plain)
    assert not graph_file.loads(graph_file.dumps(plain), "x").kernels.any()


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        ({"kernel": "matmull", "sizes": [1]}, r"\$.ops\[0\].kernel: no form is named 'matmull' - did you mean matmul"),
        ({"kernel": "matmul", "sizes": [1, 2]}, r"\$.ops\[0\].sizes: 2 sizes - give the 6 sizes of 'matmul'"),
        ({"sizes": [1]}, r"\$.ops\[0\].sizes: 1 sizes - give a kernel with them"),
        ({"kernel": "matmul", "sizes": [1, 1, 2**41, 1, 0, 0]}, "each up to 1099511627776"),
        ({"kernel": "matmul", "sizes": [1, 0, 1, 1, 0, 0]}, "kernels.0. = .* - it is no form with its sizes"),
        ({"kernel": "matmul", "sizes": [1, 1, -1, 1, 0, 0]}, r"\$.ops\[0\].sizes\[2\]"),
        ({"kernel": "loop", "sizes": [1.5]}, r"\$.ops\[0\].sizes\[0\]"),
    ],
)
def test_kernels_that_are_none_are_refused(op: dict[str, Any], fault: str) -> None:
    """In one line, with the place."""
    text = json.dumps({"format": "pesto-graph", "format_version": 1, "ops": [{"name": "a", **op}]})
    with pytest.raises(InputError, match=fault):
        graph_file.loads(text.encode(), "x")


def test_data_types_survive_and_do_not_count() -> None:
    """Types that nothing knows, and such as are not known, come back; the fingerprint and old files are as before."""
    rng = np.random.default_rng(5)
    for size in (1, 7, 40):
        plain = random_graph(rng, size)
        named = replace(
            plain, dtypes=("float16", "fp6", "int32"), dtype_of=rng.integers(-1, 3, size),
            tensor_dtype=rng.integers(-1, 3, len(plain.tensor_op)),
        )  # fmt: skip
        data = graph_file.dumps(named)
        jsonschema.validate(json.loads(data), SCHEMA)
        again = graph_file.loads(data, "x")
        for own, read in ((named.dtype_of, again.dtype_of), (named.tensor_dtype, again.tensor_dtype)):
            assert [(*named.dtypes, "")[k] for k in own] == [(*again.dtypes, "")[k] for k in read]
        assert again.fingerprint() == plain.fingerprint() and again.listing() == plain.listing()
        old = graph_file.loads(graph_file.dumps(plain), "x")
        assert b"dtype" not in graph_file.dumps(plain) and not old.dtypes
        assert (old.dtype_of == -1).all() and (old.tensor_dtype == -1).all()


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        ({"outputs": [4, 4], "dtypes": ["float16"]}, r"\$.ops\[0\].dtypes: 1 types of 2 outputs"),
        ({"outputs": [4, 4], "dtypes": ["float16", "a\u202eb"]}, r"\$.ops\[0\].dtypes\[1\]: .* control character"),
        ({"dtype": "x" * 5000}, r"\$.ops\[0\].dtype: .* longer than 4096 bytes"),
        ({"dtype": 7}, r"\$.ops\[0\].dtype"),
    ],
)
def test_data_types_that_fit_nothing_are_refused(op: dict[str, Any], fault: str) -> None:
    """One for each output, printable, not too long."""
    text = json.dumps({"format": "pesto-graph", "format_version": 1, "ops": [{"name": "a", **op}]})
    with pytest.raises(InputError, match=fault):
        graph_file.loads(text.encode(), "x")


def test_a_graph_refuses_data_types_that_it_does_not_list() -> None:
    """Of the ops and of the tensors; -1 is one that is not known."""
    plain = random_graph(np.random.default_rng(6), 5)
    for name, count in (("dtype_of", 5), ("tensor_dtype", len(plain.tensor_op))):
        with pytest.raises(InputError, match=rf"{name}\[0\] = 1 points at nothing"):
            replace(plain, dtypes=("float16",), **{name: np.ones(count, int)})
        with pytest.raises(InputError, match=f"{name} has shape"):
            replace(plain, dtypes=("float16",), **{name: np.zeros(count + 1, int)})


def test_what_has_no_place_in_the_order_survives_and_does_not_count() -> None:
    """With the way in which the step is run. Written only where they are said; fingerprint and listing stay."""
    rng = np.random.default_rng(2)
    for way in MEANT:
        plain = random_graph(rng, 30)
        said = replace(plain, loose=rng.integers(BOUND, BRANCHED + 1, 30), way=way)
        document = json.loads(graph_file.dumps(said))
        jsonschema.validate(document, SCHEMA)
        again = graph_file.loads(graph_file.dumps(said), "x")
        assert again.way == way and np.array_equal(again.loose, said.loose)
        assert again.fingerprint() == plain.fingerprint() and again.listing() == plain.listing()
    assert b"loose" not in graph_file.dumps(plain) and b"way" not in graph_file.dumps(plain)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"way": "eager"}, "way"),
        ({"ops": [{"name": "a", "loose": 4}]}, r"loose"),
        ({"ops": [{"name": "a", "loose": -1}]}, r"loose"),
    ],
)
def test_a_way_or_a_place_that_there_is_not_is_refused(change: dict[str, Any], fault: str) -> None:
    """The reader and the schema refuse the same values."""
    document = {"format": "pesto-graph", "format_version": 1, "ops": [{"name": "a"}], **change}
    with pytest.raises(InputError, match=fault):
        graph_file.loads(json.dumps(document).encode(), "x")
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(document)
