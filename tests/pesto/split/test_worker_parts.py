"""Parts of a step: every op has the part that it needs, out of blocks whose bytes are the planned ones."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.source import Source
from pesto.split import geometry
from pesto.split.division import Division, moved_bytes
from pesto.split.geometry import ONE, PARTIAL, WHOLE, Need, Rim, summands, worker_boxes
from pesto.split.op_strategy import OpStrategy
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.split.typed_graph import Operand, Signature, TypedGraph
from pesto.split.worker_parts import CLONE, JOIN, SLICE, build_worker_parts
from pesto.tf import named_sources

REDUCE = {"sum": np.add.reduce, "max": np.maximum.reduce}


def two_readers(shape):
    """An op that makes a tensor, and ops that read it."""
    tensor = (shape, "float32")
    made = Signature("Make", (), (), (tensor,))
    read = Signature("Read", (), (Operand(*tensor),), ())
    none, zeros = np.empty(0, dtype=np.int64), np.zeros(2, dtype=np.int64)
    return TypedGraph(
        names=("made", "read", "read again"), signatures=(made, read), signature_of=[0, 1, 1],
        src=zeros, output=zeros, dst=[1, 2], input=zeros, control_src=none, control_dst=none,
        handle=none, tie=none, use_op=none, use_input=none, use_variable=none, once=[False] * 3,
        source="one tensor", fingerprint="",
    )  # fmt: skip


@st.composite
def cases(draw):
    """Factors, a shape, and layouts of it: computed, kept, needed twice, perhaps with rims."""
    factors = draw(st.sampled_from([(2,), (3,), (2, 2), (2, 3), (2, 2, 2)]))
    shape = draw(st.sampled_from([(8, 12), (24,), (6, 4, 8), (12, 12)]))
    fitting = [
        layouts
        for layouts in product((WHOLE, *range(len(shape))), repeat=len(factors))
        if geometry.divides(shape, layouts, factors)
    ]
    some, alone = st.sampled_from(fitting), (ONE,) * len(factors)
    often = st.one_of(some, some, st.just(alone))
    partial = draw(st.lists(st.booleans(), min_size=len(factors), max_size=len(factors)))
    computed = tuple(PARTIAL if p else d for p, d in zip(partial, draw(some), strict=True))
    if draw(st.booleans()) and draw(st.booleans()):
        computed = alone
    needs = (draw(windows(draw(often), shape, factors)), draw(windows(draw(often), shape, factors)))
    return factors, shape, computed, draw(often), needs, draw(st.sampled_from(sorted(REDUCE)))


@st.composite
def windows(draw, layouts, shape, factors):
    """A need of those layouts: parts as they are, or along some dimensions a little more, or elsewhere."""
    part, rims = geometry.part_shape(shape, layouts, factors), []
    for d in sorted({*layouts} & {*range(len(shape))}):
        if draw(st.booleans()):
            low = draw(st.integers(-1, part[d] - 1))
            rims.append(Rim(d, part[d], low, draw(st.integers(1 - min(low, 0), 2 * part[d]))))
    return Need(layouts, tuple(rims))


def run(parts, whole, computed, factors, reducer):
    """What each part gives, by numpy; the op that makes the tensor gives parts of it, or of random results."""
    shape, results = whole.shape, summands(computed, factors)
    rng = np.random.default_rng(0)
    each = {s: rng.integers(-9, 9, shape) for s in results}
    total = REDUCE[reducer](list(each.values())) if PARTIAL in computed else whole
    found, digits = {}, geometry.worker_digits(factors).T.tolist()
    inputs = {part: [] for part in range(len(parts.parts))}
    for src, _, dst, place in sorted(
        zip(parts.src, parts.output, parts.dst, parts.input, strict=True), key=lambda e: e[2:]
    ):
        inputs[int(dst)].append(int(src))
        assert len(inputs[int(dst)]) == place + 1
    for number, part in enumerate(parts.parts):
        given = [found[src] for src in inputs[number]]
        if part.kind == CLONE:
            box = worker_boxes(shape, computed, factors)[part.worker]
            mine = tuple(d for d, layout in zip(digits[part.worker], computed, strict=True) if layout == PARTIAL)
            source = each[mine] if PARTIAL in computed else whole
            found[number] = cut(source, box) if part.op == 0 else given[0]
        elif part.kind == SLICE:
            found[number] = cut(given[0], (part.begin, part.shape))
        elif part.kind == JOIN:
            found[number] = given[0] if part.axis < 0 else np.concatenate(given, axis=part.axis)
        else:
            found[number] = REDUCE[reducer](given)
        assert part.kind == CLONE or found[number].shape == part.shape
    return found, total


def cut(array, box):
    """A block of an array."""
    return array[tuple(slice(a, a + n) for a, n in zip(*box, strict=True))]


def named_as(layouts):
    """The names of an op's cuts: once where it is on one worker."""
    return tuple("once" if layout == ONE else "x" for layout in layouts)


@given(cases())
def test_all_have_the_part_that_they_need(case):
    """Of what anybody computed, and for the bytes that are planned."""
    factors, shape, computed, kept, needs, reducer = case
    shaped = two_readers(shape)
    ways = [OpStrategy(named_as(computed), (), (computed,), reducer if PARTIAL in computed else "")]
    ways += [OpStrategy(named_as(need.layouts), (need.layouts,), (), rims=(need.rims,)) for need in needs]
    division = Division(factors=factors, strategies=tuple(ways), kept=((kept,), (), ()), variables=())
    parts = build_worker_parts(shaped, division)
    found, total = run(parts, np.arange(prod(shape)).reshape(shape), computed, factors, reducer)
    for reader, need in enumerate(needs, 1):
        for worker, box in enumerate(worker_boxes(shape, need.layouts, factors, need.rims)):
            assert (box is None) == (parts.clone[reader, worker] < 0)
            assert box is None or (found[parts.clone[reader, worker]] == cut(total, box)).all()
    assert parts.moved_bytes() == moved_bytes(shaped, division)
    assert all(parts.parts[part].worker == worker for worker, part in enumerate(parts.clone[1]) if part >= 0)


@pytest.mark.parametrize("factors", [(2,), pytest.param((2, 2), marks=pytest.mark.slow)])
def test_steps_are_built_as_planned(factors):
    """Of a whole step what is planned is what its parts send; what is known as a constant has no part."""
    _, shaped = named_sources.load_typed(Source(model="nmt", variant="tiny"))
    found = divide(shaped, factors, "exact", Rules(), seconds=60)
    parts = build_worker_parts(shaped, found.division)
    assert parts.moved_bytes() == found.moved_bytes
    assert (parts.src < parts.dst).all()
    runs = (parts.clone >= 0).sum(axis=1)
    assert set(runs[~shaped.once].tolist()) == {0, prod(factors)}
    assert set(runs[shaped.once].tolist()) <= {0, 1}


def test_results_come_together():
    """The first worker has a result whole; what that sends is not the step's."""
    shaped = two_readers((8, 12))
    way = OpStrategy(("x",), (), ((0,),))
    division = Division(
        factors=(2,), strategies=(way, *[OpStrategy(("x",), ((0,),), ())] * 2), kept=(((0,),), (), ()), variables=()
    )
    parts = build_worker_parts(shaped, division, [(0, 0)])
    found, total = run(parts, np.arange(96).reshape(8, 12), (0,), (2,), "sum")
    assert (found[parts.results[0][0]] == total).all()
    assert parts.parts[parts.results[0][0]].worker == 0
    assert parts.moved_bytes() == 0
