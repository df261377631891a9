"""Windows: parts that read a little more than their share, against every element that is read, held and sent."""

import json
from dataclasses import replace
from itertools import product
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pesto.core.errors import VerificationError
from pesto.split import geometry, split_search
from pesto.split.files.recount import needed_parts, recount_bytes, strategy_fault
from pesto.split.files.split_check import certify_bounds, verify_split
from pesto.split.files.split_file import dumps_split, loads_split
from pesto.split.geometry import ONE, WHOLE, Need, Rim, elements_received, worker_boxes
from pesto.split.op_strategy import admissible_strategies, uncut_strategy
from pesto.split.ops import op_types
from pesto.split.program import Rules
from pesto.split.regions import analyse
from pesto.split.split_search import divide
from pesto.split.tdl import Index, Lambda, Sum, opaque
from pesto.split.typed_graph import Operand, Signature, TypedGraph


def signature(inputs, outputs, type_="Mine"):
    return Signature(
        type_, (), tuple(Operand(shape, "float32") for shape in inputs), tuple((o, "float32") for o in outputs)
    )


def conv1d(op):
    data, filters = op[0], op[1]
    return [lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])]


def shift_two(op):
    return [lambda i: op[0][i + 2]]


def test_the_papers_convolution_along_the_picture() -> None:
    """With a halo x can be cut, of two elements that both parts read; dx not, whose parts would share nearly all."""
    found = analyse(conv1d, signature([(8, 4, 10), (4, 6, 3)], [(8, 6, 8)]), 2, halo=True)
    assert {s.name: s.needs for s in found.admitted} == {
        "b": (0, WHOLE),
        "co": (WHOLE, 1),
        "x": (2, WHOLE),
        "ci": (1, 0),
    }
    assert {s.name: s.rims for s in found.admitted if s.rims} == {"x": ((Rim(2, 4, 0, 6),), ())}
    assert [r.variable for r in found.refused] == ["dx"]


def test_shift_two() -> None:
    """With a halo each half of what it returns is of a window; a kernel of one's own cannot be told where to begin."""
    kind = signature([(10,)], [(8,)])
    (cut,) = analyse(shift_two, kind, 2, halo=True).admitted
    assert cut.rims == ((Rim(0, 4, 2, 4),),) and worker_boxes((10,), (0,), (2,), cut.rims[0]) == (
        ((2,), (4,)),
        ((6,), (4,)),
    )
    op_types.register("Mine", shift_two)
    try:
        found = op_types.strategies(kind, 2, halo=True)
        assert not found.admitted and "cannot be told" in found.refused[0].reason
        op_types.register("Mine", conv1d)
        found = op_types.strategies(signature([(8, 4, 10), (4, 6, 3)], [(8, 6, 8)]), 2, halo=True)
        assert "x" in {s.name for s in found.admitted}
    finally:
        op_types.unregister("Mine")


@pytest.mark.parametrize(
    ("description", "shape", "out", "why"),
    [
        (lambda op: [lambda i, j: opaque(op[0][i, :])[j]], (4, 8), (4, 8), "opaque"),
        (lambda op: [lambda i, j: op[0].padded[i, j - 8]], (4, 8), (4, 8), "nothing but what lies beyond"),
        (lambda op: [lambda i, j: op[0][i, j] + op[0].padded[i, j + 5]], (4, 8), (4, 8), "share most"),
        (lambda op: [lambda i, j: op[0][i, 7 - j]], (4, 8), (4, 8), "not of one size"),
        (lambda op: [lambda i, j: op[0].padded[i, j / 3]], (4, 8), (4, 8), "not of one size"),
        (lambda op: [lambda i, j: op[0][i, j] + op[0][j, i]], (8, 8), (8, 8), "two ways"),
    ],
)
def test_what_is_no_window(description, shape, out, why) -> None:
    """Slices of what a function returns, parts of padding alone, rims wider than parts, turned round, uneven steps."""
    found = analyse(description, signature([shape], [out]), 2, halo=True)
    assert why in next(r.reason for r in found.refused if r.variable == "j")


FORM = st.tuples(
    st.sampled_from(["i", "j", "i+j", "0"]), st.sampled_from([1, 1, 2, 3]), st.sampled_from([1, 1, 2]),
    st.integers(-2, 3),
)  # fmt: skip


@st.composite
def affine(draw):
    """An output of two dimensions, of what is read at affine indices, once or twice, with gaps or without."""
    forms = [[draw(FORM) for _ in range(draw(st.integers(1, 2)))]]
    if draw(st.booleans()):
        forms.append([(kind, times, parts, draw(st.integers(-2, 3))) for kind, times, parts, _ in forms[0]])
    out = (draw(st.sampled_from([1, 2, 4, 6])), draw(st.sampled_from([1, 2, 4])))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 5, 8, 12])) for _ in forms[0])
    return forms, out, shape, draw(st.booleans()), draw(st.sampled_from([2, 3]))


def index(form, i, j):
    """The index of one dimension, of numbers or of symbols; of numbers None between two elements."""
    kind, times, parts, shift = form
    terms = {"i": i * times, "j": j * times, "i+j": i * times + j, "0": i * 0}[kind] + shift
    if isinstance(i, Index):
        return terms / parts
    return terms // parts if terms % parts == 0 else None


@given(affine())
@settings(max_examples=8 * settings.default.max_examples)
def test_windows_are_the_elements_read(case) -> None:
    """Of each part just from the first to the last element that it reads, against every element of small tensors."""
    forms, out, shape, spaced, k = case

    def description(op):
        tensor = op[0].spaced if spaced else op[0].padded
        reads = lambda i, j: (tensor[tuple(index(f, i, j) for f in read)] for read in forms)  # noqa: E731
        return [Lambda(("i", "j"), lambda i, j: opaque(*reads(i, j)))]

    for strategy in analyse(description, signature([shape], [out]), k, halo=True).admitted:
        if not strategy.rims:
            continue
        cut = "ij".index(strategy.name)
        many = out[cut] // k
        for p, box in enumerate(worker_boxes(shape, strategy.needs, (k,), strategy.rims[0])):
            places = product(*(range(p * many, p * many + many) if d == cut else range(n) for d, n in enumerate(out)))
            (d,) = [rim.dimension for rim in strategy.rims[0]]
            every = [index(read[d], *place) for place in places for read in forms]
            if all(form[2] == 1 or (spaced and form[1] == 1) for read in forms for form in read):
                read = [e for e in every if e is not None]
                assert read and max(0, min(read)) == box[0][d]
                assert min(shape[d] - 1, max(read)) == box[0][d] + box[1][d] - 1
            else:
                low, high = box[0][d], box[0][d] + box[1][d]
                assert all(e is None or not 0 <= e < shape[d] or low <= e < high for e in every)


@st.composite
def lying(draw):
    """A tensor of which some is cut, and two windows of it."""
    factors = draw(st.sampled_from([(2,), (3,), (4,), (2, 2), (2, 3)]))
    shape = draw(st.sampled_from([(12,), (12, 5), (7, 12), (12, 24)]))
    fitting = [
        at for at in product((WHOLE, *range(len(shape))), repeat=len(factors)) if geometry.divides(shape, at, factors)
    ]
    kept = draw(st.sampled_from([*fitting, (ONE,) * len(factors)]))
    needs = []
    for _ in range(2):
        at = draw(st.sampled_from(list(product((WHOLE, *range(len(shape))), repeat=len(factors)))))
        rims = []
        for d in sorted({*at} - {WHOLE}):
            parts = prod(k for layout, k in zip(at, factors, strict=True) if layout == d)
            step = max(1, shape[d] // parts)
            low = draw(st.integers(-1, 1))
            size = draw(st.integers(max(1, 1 - low), 2 * step + 1))
            if step * (parts - 1) + low < shape[d]:
                rims.append(Rim(d, step, low, size))
        shares = tuple(layout if any(r.dimension == layout for r in rims) else WHOLE for layout in at)
        needs.append(Need(shares, tuple(rims)))
    return factors, shape, kept, tuple(needs)


def elements(shape, need, factors):
    """[K] the elements that each worker reads, one by one: which part it has by counting its digits."""
    found = []
    for digits in product(*map(range, factors)):
        mine = set()
        for element in product(*map(range, shape)):
            inside = True
            for d, step, low, size in need.rims:
                part = 0
                for digit, k, at in zip(digits, factors, need.layouts, strict=True):
                    part = part * k + digit if at == d else part
                inside &= step * part + low <= element[d] < step * part + low + size
            if inside:
                mine.add(element)
        found.append(mine)
    return found


@given(lying())
@settings(max_examples=150)
def test_bytes_of_windows_are_the_elements_that_lack(case) -> None:
    """What workers receive for one window, and for two, of which each that is another is received on its own."""
    factors, shape, kept, needs = case
    lies = [
        set() if box is None else set(product(*(range(a, a + n) for a, n in zip(*box, strict=True))))
        for box in worker_boxes(shape, kept, factors)
    ]
    want = [elements(shape, need, factors) for need in needs]
    for need, each in zip(needs, want, strict=True):
        lacks = sum(len(mine - has) for mine, has in zip(each, lies, strict=True))
        assert geometry.elements_to_fetch(shape, kept, need.layouts, factors, need.rims) == lacks
        for box, ranges, mine in zip(
            worker_boxes(shape, need.layouts, factors, need.rims),
            needed_parts(shape, need.layouts, need.rims, factors), each,
            strict=True,
        ):  # fmt: skip
            assert set(product(*(range(a, a + n) for a, n in zip(*box, strict=True)))) == mine
            assert set(product(*ranges)) == mine
    both = zip(*want, lies, strict=True)
    lacks = sum(len(part - has) for *parts, has in both for part in {frozenset(mine) for mine in parts})
    assert elements_received(shape, kept, kept, frozenset(needs), factors) == lacks


PICTURE, FILTERS = (1, 8, 8, 2), (3, 3, 2, 2)
SAME = (("data_format", "NHWC"), ("dilations", (1,) * 4), ("padding", "SAME"), ("strides", (1,) * 4))
CONV = Signature(
    "Conv2D", SAME, (Operand(PICTURE, "float32"), Operand(FILTERS, "float32")), (((1, 8, 8, 2), "float32"),)
)


def test_a_dimension_is_cut_once_more() -> None:
    """Windows of nested cuts are of all parts; the other dimension keeps its own."""
    once = {
        way.names[-1]: way
        for way in admissible_strategies(CONV, uncut_strategy(CONV), (2,), whole=False, once=False, halo=True)
    }
    assert "x0" not in {
        w.names[-1] for w in admissible_strategies(CONV, uncut_strategy(CONV), (2,), whole=False, once=False)
    }
    twice = {
        way.names[-1]: way for way in admissible_strategies(CONV, once["x0"], (2, 2), whole=True, once=False, halo=True)
    }
    assert twice["x0"].need(0) == Need((1, 1), (Rim(1, 2, -1, 4),))
    assert twice["x1"].need(0) == Need((1, 2), (Rim(1, 4, -1, 6), Rim(2, 4, -1, 6)))
    assert twice["whole"].need(0) == Need((1, WHOLE), (Rim(1, 4, -1, 6),))
    for way in twice.values():
        assert strategy_fault(CONV, way, (2, 2), once=False, halo=True) == ""
        assert not way.rims or strategy_fault(CONV, way, (2, 2), once=False)


@pytest.mark.parametrize("rim", [Rim(1, 4, -1, 5), Rim(1, 4, -1, 7), Rim(1, 4, 0, 6), Rim(1, 3, -1, 6)])
def test_windows_that_are_not_read_are_found(rim) -> None:
    """Too short, too long, elsewhere, by another step: what the check finds by the ranges that each worker reads."""
    made = next(
        w
        for w in admissible_strategies(CONV, uncut_strategy(CONV), (2,), whole=False, once=False, halo=True)
        if w.names == ("x0",)
    )
    assert "is not its window" in strategy_fault(CONV, replace(made, rims=((rim,), ())), (2,), once=False, halo=True)


def step_of_two():
    """A picture that somebody makes, and two convolutions, one after the other."""
    make = Signature("Relu", (), (), ((PICTURE, "float32"),))
    filters = Signature("Relu", (), (), ((FILTERS, "float32"),))
    none = np.empty(0, dtype=np.int64)
    return TypedGraph(
        names=("x", "f", "first", "second"), signatures=(make, filters, CONV), signature_of=[0, 1, 2, 2],
        src=[0, 1, 2, 1], output=[0] * 4, dst=[2, 2, 3, 3], input=[0, 1, 0, 1], control_src=none, control_dst=none,
        handle=none, tie=none, use_op=none, use_input=none, use_variable=none, once=[False] * 4,
        source="two convolutions", fingerprint="",
    )  # fmt: skip


def test_a_file_says_that_there_is_a_halo() -> None:
    """What was cut so is read so, checked and bounded; without the word it is refused, and without a halo unsaid."""
    shaped, rules = step_of_two(), Rules(halo=True)
    split, plain = (divide(shaped, (2,), "exact", each, seconds=60) for each in (rules, Rules()))
    assert any(way.rims for way in split.division.strategies) and split.moved_bytes < plain.moved_bytes
    assert recount_bytes(shaped, split.division) == split.moved_bytes
    text = dumps_split(shaped, split, time_limit_s=60.0)
    found = loads_split(text, "split")
    assert found.rules == rules and verify_split(found, shaped) == split.division
    assert certify_bounds(found, shaped, seconds=60).confirmed
    said = json.loads(text)
    assert said["rules"].pop("halo") is True
    with pytest.raises(VerificationError, match="cannot be cut in 2 along"):
        verify_split(loads_split(json.dumps(said).encode(), "split"), shaped)
    assert "halo" not in json.loads(dumps_split(shaped, plain, time_limit_s=60.0))["rules"]


def test_a_halo_that_sends_more_is_not_taken(monkeypatch):
    """Of two splits the one with fewer bytes; of equals the one without windows."""
    told = {False: 10, True: 12}

    def divided(shaped, factors, method, rules, *, seconds):
        return SimpleNamespace(moved_bytes=told[rules.halo], halo=rules.halo)

    monkeypatch.setattr(split_search, "divide", divided)
    for sent, taken in ((12, False), (10, False), (8, True)):
        told[True] = sent
        heard = []
        found = split_search.divide_with_or_without_halo(
            None, (2,), "exact", Rules(halo=True), seconds=1, on_split=heard.append
        )
        assert found.halo == taken and [split.halo for split in heard] == [False]
    told[True] = 0
    assert not split_search.divide_with_or_without_halo(None, (2,), "exact", Rules(), seconds=1).halo


def test_splits_with_a_halo_and_without_share_the_limit(monkeypatch):
    """Half for the one without, what is left for the other; where nothing is left there is no other."""
    asked, clock, took = [], [0.0], [0.0]

    def divided(shaped, factors, method, rules, *, seconds):
        asked.append(seconds)
        clock[0] += took[0]
        return SimpleNamespace(moved_bytes=1, halo=rules.halo)

    monkeypatch.setattr(split_search, "divide", divided)
    monkeypatch.setattr(split_search, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    for spent, seconds in ((4.0, [5.0, 6.0]), (10.0, [5.0])):
        took[0] = spent
        asked.clear()
        assert not split_search.divide_with_or_without_halo(None, (2,), "exact", Rules(halo=True), seconds=10).halo
        assert asked == seconds
