"""The layout of a graph: what it sees, what it does not, and what it costs."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.core.graph import Graph


def graph(rng: np.random.Generator, ops: int) -> Graph:
    """Ops of three types and up to three outputs each, with data and control edges forwards, in five groups."""
    produced = rng.integers(1, 4, ops)
    tensor_op = np.repeat(np.arange(ops), produced)
    first = np.searchsorted(tensor_op, np.arange(ops))
    pairs = np.unique(np.sort(rng.integers(0, ops, (3 * ops, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    data, control = pairs[::2], pairs[1::2]
    return Graph(
        names=tuple(f"op{i}" for i in range(ops)), types=("A", "B", "C"), type_of=rng.integers(0, 3, ops),
        tensor_op=tensor_op, tensor_bytes=rng.integers(0, 100, len(tensor_op)), src=data[:, 0], dst=data[:, 1],
        tensor=first[data[:, 0]] + rng.integers(0, produced[data[:, 0]]), control_src=control[:, 0],
        control_dst=control[:, 1], group=rng.integers(-1, 5, ops), kinds=("cpu", "gpu"),
        runs_on=np.ones((ops, 2), dtype=bool), param_bytes=np.zeros(ops, dtype=np.int64), flops=rng.random(ops),
        moved_bytes=np.zeros(ops, dtype=np.int64), launches=np.ones(ops, dtype=bool), given_s=np.empty((ops, 0)),
        source="random",
    )  # fmt: skip


def rearranged(g: Graph, order: np.ndarray) -> Graph:
    """The same ops with order[i] at place i, built by hand."""
    rank = np.argsort(order)
    tensors = np.argsort(rank[g.tensor_op], kind="stable")
    return replace(
        g, names=tuple(g.names[i] for i in order), type_of=g.type_of[order], tensor_op=rank[g.tensor_op][tensors],
        tensor_bytes=g.tensor_bytes[tensors], src=rank[g.src], dst=rank[g.dst], tensor=np.argsort(tensors)[g.tensor],
        control_src=rank[g.control_src], control_dst=rank[g.control_dst], group=g.group[order], flops=g.flops[order],
    )  # fmt: skip


@pytest.fixture
def some() -> Graph:
    return graph(np.random.default_rng(1), 40)


def test_the_layout_does_not_see_names_sizes_or_how_edges_are_listed(some: Graph) -> None:
    """Other names, bytes, work, group numbers, numbers of types and orders of the edges: one layout."""
    rng = np.random.default_rng(2)
    data, control = rng.permutation(len(some.src)), rng.permutation(len(some.control_src))
    other = replace(
        some, names=tuple(f"other/{i}" for i in range(some.ops)), tensor_bytes=some.tensor_bytes + 1,
        flops=some.flops * 2, src=some.src[data], dst=some.dst[data], tensor=some.tensor[data],
        control_src=some.control_src[control], control_dst=some.control_dst[control], types=("C", "B", "A"),
        type_of=2 - some.type_of, group=np.where(some.group < 0, -1, 9 - some.group), source="other", batch=32,
    )  # fmt: skip
    assert other.layout() == some.layout()
    assert other.fingerprint() != some.fingerprint()


def turned(values: np.ndarray) -> np.ndarray:
    """The first value exchanged for the next one that differs."""
    found = values.copy()
    k = int(np.flatnonzero(values != values[0])[0])
    found[[0, k]] = found[[k, 0]]
    return found


@pytest.mark.parametrize("what", ["type", "data edge", "output", "control edge", "group", "op"])
def test_the_layout_sees_every_part_of_the_structure(some: Graph, what: str) -> None:
    """One op's type or group, one edge's head, or which output it carries: another layout."""
    changed = {
        "type": lambda: replace(some, type_of=turned(some.type_of)),
        "data edge": lambda: replace(some, dst=np.where(np.arange(len(some.dst)) == 0, some.ops - 1, some.dst)),
        "output": lambda: replace(some, tensor=some.tensor + _steps(some)),
        "control edge": lambda: replace(some, control_src=some.control_src[1:], control_dst=some.control_dst[1:]),
        "group": lambda: replace(some, group=turned(some.group)),
        "op": lambda: rearranged(some, np.r_[1, 0, 2 : some.ops]),
    }[what]()
    assert some.dst[0] != some.ops - 1 and changed.layout() != some.layout()


@pytest.mark.parametrize("what", ["tensor_bytes", "flops", "param_bytes", "moved_bytes", "launches", "runs_on"])
def test_the_listing_sees_sizes_and_work_by_index(what: str) -> None:
    """Two ops without edges, alike but for one number, exchanged: one fingerprint, one layout, another listing."""
    some = graph(np.random.default_rng(1), 40)
    extra = {"tensor_op": np.r_[some.tensor_op, 40, 41], "tensor_bytes": np.r_[some.tensor_bytes, 7, 7]}
    extra |= {name: np.r_[getattr(some, name), [getattr(some, name)[0]] * 2] for name in ("param_bytes", "moved_bytes")}
    extra |= {"flops": np.r_[some.flops, 1.0, 1.0], "launches": np.ones(42, bool), "runs_on": np.ones((42, 2), bool)}
    mine, other = ({name: values.copy() for name, values in extra.items()} for _ in range(2))
    at = len(some.tensor_op) if what == "tensor_bytes" else 40
    for columns, place in ((mine, at), (other, at + 1)):
        columns[what][place, ...] = False if columns[what].dtype == bool else 99
        if what == "runs_on":
            columns[what][place] = [True, False]
    a, b = (
        replace(
            some, names=tuple(f"op{i}" for i in range(42)), type_of=np.r_[some.type_of, 0, 0],
            group=np.r_[some.group, -1, -1], given_s=np.empty((42, 0)), **columns,
        )
        for columns in (mine, other)
    )  # fmt: skip
    swap = np.r_[np.arange(40), 41, 40]
    assert a.layout() == b.layout() and a.listing() != b.listing()
    assert a.listing() == b.listing(swap) == replace(b, batch=8, source="b").listing(swap)


def test_the_listing_sees_the_structure_and_no_names(some: Graph) -> None:
    """As the layout does: by any order it is that of the rearranged graph."""
    order = np.random.default_rng(3).permutation(some.ops)
    assert some.listing(order) == rearranged(some, order).listing() != some.listing()
    assert replace(some, names=tuple(f"other/{i}" for i in range(some.ops))).listing() == some.listing()
    assert replace(some, type_of=turned(some.type_of)).listing() != some.listing()
    with pytest.raises(InputError, match="each of the 40 ops once"):
        some.listing(np.zeros(40))


def _steps(g: Graph) -> np.ndarray:
    """[e] 1 for the first edge whose op has an output after the one that it carries, else 0."""
    more = np.append(g.tensor_op, -1)[g.tensor + 1] == g.src
    return (np.arange(len(more)) == np.flatnonzero(more)[0]).astype(np.int64)


def test_an_order_gives_the_layout_of_the_rearranged_graph(some: Graph) -> None:
    """For 20 random orders: the layout in that order is the layout of a graph that lists its ops so."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        order = rng.permutation(some.ops)
        assert some.layout(order) == rearranged(some, order).layout() != some.layout()
    assert some.layout(np.arange(some.ops)) == some.layout()


@pytest.mark.parametrize("order", [np.arange(39), np.zeros(40), np.arange(1, 41)])
def test_an_order_holds_every_op_once(some: Graph, order: np.ndarray) -> None:
    """Too short, repeated, beyond the end: refused."""
    with pytest.raises(InputError, match="each of the 40 ops once"):
        some.layout(order)


def test_the_batch_is_no_part_of_the_fingerprint(some: Graph) -> None:
    """A batch is a record; below 1 it is refused."""
    assert replace(some, batch=32).fingerprint() == some.fingerprint()
    with pytest.raises(InputError, match="batch is 0"):
        replace(some, batch=0)


def test_twenty_thousand_ops_take_no_more_steps_of_python_than_two_hundred() -> None:
    """All that grows with the ops runs inside numpy: a layout of 20 000 takes milliseconds on any machine."""
    calls = []
    for ops in (200, 20_000):
        large = graph(np.random.default_rng(4), ops)
        assert len(large.edge_src) > 2.5 * ops
        seen: list[str] = []
        sys.setprofile(lambda _, event, __, seen=seen: seen.append(event))
        try:
            large.layout()
        finally:
            sys.setprofile(None)
        calls.append(len(seen))
    assert calls[1] < 2 * calls[0], calls
