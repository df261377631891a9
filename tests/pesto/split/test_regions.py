"""Which index variables of a description can be cut: the paper's examples, and every element that is read."""

from fractions import Fraction
from itertools import product
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pesto.core.errors import InputError
from pesto.split.geometry import PARTIAL, WHOLE
from pesto.split.op_strategy import admissible_strategies, uncut_strategy
from pesto.split.ops import op_types
from pesto.split.regions import ReadsBeyondError, analyse
from pesto.split.tdl import Index, Lambda, Max, NotDescribedError, Sum, Value, opaque
from pesto.split.typed_graph import Operand, Signature


def signature(inputs, outputs, type_="Mine"):
    return Signature(
        type_, (), tuple(Operand(shape, "float32") for shape in inputs), tuple((o, "float32") for o in outputs)
    )


def names(found):
    return {s.name for s in found.admitted}


def conv1d(op):
    data, filters = op[0], op[1]
    return [lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])]


def test_the_papers_convolution() -> None:
    """Figures 2 and 3: b, co and ci can be cut; x and dx not, as windows overlap."""
    found = analyse(conv1d, signature([(8, 4, 10), (4, 6, 3)], [(8, 6, 8)]), 2)
    assert {s.name: (s.needs, s.gives) for s in found.admitted} == {
        "b": ((0, WHOLE), (0,)), "co": ((WHOLE, 1), (1,)), "ci": ((1, 0), (PARTIAL,)),
    }  # fmt: skip
    assert {r.variable for r in found.refused} == {"x", "dx"}
    assert all(s.reducer == ("sum" if s.name == "ci" else "") for s in found.admitted)


def test_a_window_of_one_element_does_not_overlap() -> None:
    """The same with dx of one value: then x can be cut."""
    assert names(analyse(conv1d, signature([(8, 4, 10), (4, 6, 1)], [(8, 6, 10)]), 2)) == {"b", "co", "ci", "x"}


def test_matmul_has_three() -> None:
    """Rows, columns, and the dimension that is summed over."""
    found = op_types.strategies(Signature("MatMul", (), *_two((6, 4), (4, 8), (6, 8))), 2)
    assert {s.name: (s.needs, s.gives) for s in found.admitted} == {
        "m": ((0, WHOLE), (0,)), "n": ((WHOLE, 1), (1,)), "k": ((1, 0), (PARTIAL,)),
    }  # fmt: skip
    assert names(op_types.strategies(Signature("MatMul", (), *_two((6, 4), (4, 8), (6, 8))), 3)) == {"m"}


def _two(a, b, out):
    return (Operand(a, "float32"), Operand(b, "float32")), ((out, "float32"),)


def test_batch_cholesky_by_the_batch_only() -> None:
    """Figure 4: an index into what an opaque function returns cuts no work."""
    found = analyse(lambda op: [lambda b, i, j: opaque(op[0][b, :, :])[i, j]], signature([(4, 6, 6)], [(4, 6, 6)]), 2)
    assert names(found) == {"b"} and "opaque" in found.refused[0].reason


def test_shift_two_is_refused() -> None:
    """The halves of what it returns are not of halves of what it reads."""
    found = analyse(lambda op: [lambda i: op[0][i + 2]], signature([(10,)], [(8,)]), 2)
    assert not found.admitted and "shifted" in found.refused[0].reason


def test_only_the_outermost_reduction_is_cut() -> None:
    """A sum below a square root, and a maximum of sums."""
    root = analyse(lambda op: [lambda i: Sum(lambda r: op[0][i, r]) + op[1][i]], signature([(4, 6), (4,)], [(4,)]), 2)
    assert names(root) == {"i"}
    both = analyse(lambda op: [lambda: Max(lambda i: Sum(lambda r: op[0][i, r]))], signature([(4, 6)], [()]), 2)
    assert {(s.name, s.reducer) for s in both.admitted} == {("i", "max")}


def test_a_diagonal_and_two_views_are_refused() -> None:
    """One tensor cut along two dimensions, or read in two ways."""
    assert not analyse(lambda op: [lambda i: op[0][i, i]], signature([(4, 4)], [(4,)]), 2).admitted
    views = analyse(lambda op: [lambda i, j: op[0][i, j] + op[0][j, i]], signature([(4, 4)], [(4, 4)]), 2)
    assert not views.admitted and "two ways" in views.refused[0].reason


@pytest.mark.parametrize(
    "bad",
    [
        lambda op: [lambda i: op[0][i * i]],
        lambda op: [lambda i: op[0][i / i]],
        lambda op: [lambda i: op[0][i] if i < 2 else op[0][0]],
        lambda op: [lambda i: op[0][i] if i == 2 else op[0][0]],
        lambda op: [lambda i: op[0][i] if i else op[0][0]],
        lambda op: [lambda i: op[0][i] if op[0][0] == 1 else op[0][0]],
        lambda op: [lambda i: op[0][i] if op[0][i] else op[0][0]],
        lambda op: [Lambda(("i",), lambda _: Sum(lambda i: op[0][i]))],
        lambda op: [lambda i: op[0][i] + Sum(lambda i: op[0][i])],
        lambda op: [Lambda(("i", "i"), lambda *i: op[0][i[0]])],
        lambda _: [],
        lambda op: [lambda i, j: op[0][i + j]],
        lambda op: [lambda i: op[0][i, i]],
    ],
)
def test_what_the_language_does_not_say(bad) -> None:
    """Products, quotients, comparisons and conditions; names bound twice; lambdas or indices of another rank."""
    with pytest.raises(NotDescribedError):
        analyse(bad, signature([(4,)], [(4,)]), 2)


@pytest.mark.parametrize(
    "bad",
    [
        lambda op: [lambda i: op[0][i + 1]],
        lambda op: [lambda i: op[0][2 - i]],
        lambda op: [lambda i: op[0][i] + op[0][100]],
        lambda op: [lambda i: Max(lambda r: op[0][r] + op[0][r + i])],
    ],
)
def test_elements_that_an_input_does_not_have(bad) -> None:
    """They are an error, unless the description says that there is padding."""
    with pytest.raises(ReadsBeyondError, match="input 0, dimension 0 of 4: it reads"):
        analyse(bad, signature([(4,)], [(4,)]), 2)
    assert not analyse(lambda op: [lambda i: op[0].padded[i + 1]], signature([(4,)], [(4,)]), 2).admitted


def test_an_input_cannot_be_iterated() -> None:
    """A sum by Python over an input has no end, so it is an error."""
    op_types.register("Mine", lambda op: [lambda _: sum(op[0])])
    try:
        with pytest.raises(InputError, match=r"the description of Mine fails: .*not iterable"):
            op_types.strategies(signature([(4,)], [(4,)]), 2)
    finally:
        op_types.unregister("Mine")


def test_a_description_that_raises_is_named() -> None:
    """One line with the op type; a description of one's own goes before the table's."""
    op_types.register("Mine", lambda op: [lambda i: op[7][i]])
    try:
        with pytest.raises(InputError, match="the description of Mine fails"):
            op_types.strategies(signature([(4,)], [(4,)]), 2)
        op_types.register("Mine", lambda op: [lambda i: op[0][i]])
        assert names(op_types.strategies(signature([(4,)], [(4,)]), 2)) == {"i"}
        assert op_types.coverage(["Mine", "Relu", "Const", "Nobody"]) == [
            ("Const", "whole", "a source: it has no input to divide"), ("Mine", "own", ""), ("Nobody", "", ""),
            ("Relu", "elementwise", ""),
        ]  # fmt: skip
    finally:
        op_types.unregister("Mine")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda op: [lambda i: op[0][i]], "1 lambdas for 2 outputs"),
        (lambda op: [lambda i: op[0][i], lambda i, j: op[0][i + j]], "2 index variables for output 1 of rank 1"),
    ],
)
def test_a_description_of_other_outputs_is_named(bad, said) -> None:
    """The op would be done whole by every worker, and nobody would know why."""
    op_types.register("Mine", bad)
    try:
        with pytest.raises(InputError, match=f"the description of Mine is of another op: {said} - mend it"):
            op_types.strategies(signature([(4,)], [(4,), (4,)]), 2)
    finally:
        op_types.unregister("Mine")


def test_ways_follow_descriptions() -> None:
    """What an op type that was just described can do is known at once, and forgotten with its description."""
    mine = signature([(4,)], [(4,)])

    def found() -> set[str]:
        return {
            way.names[-1] for way in admissible_strategies(mine, uncut_strategy(mine), (2,), whole=False, once=False)
        }

    assert found() == {"whole"}
    op_types.register("Mine", lambda op: [lambda i: op[0][i]])
    try:
        assert found() == {"i"}
    finally:
        op_types.unregister("Mine")
    assert found() == {"whole"}


FORM = st.tuples(
    st.sampled_from(["i", "j", "i+j", "0"]),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([1, 1, 2]),
    st.integers(-1, 2),
)


@st.composite
def affine(draw):
    """An output of two dimensions, of what is read at one or two affine indices."""
    forms = [draw(FORM) for _ in range(draw(st.integers(1, 2)))]
    out = (draw(st.sampled_from([1, 2, 4, 6])), draw(st.sampled_from([1, 2, 4])))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12])) for _ in forms)
    return forms, out, shape, draw(st.sampled_from([2, 3]))


def index(form, i, j):
    """The index of one dimension, of numbers or of symbols."""
    kind, times, parts, shift = form
    terms = {"i": i * times, "j": j * times, "i+j": i * times + j, "0": i * 0}[kind]
    return (terms + shift) / parts if isinstance(i, Index) else floor(Fraction(terms + shift, parts))


def _right(forms, out, shape, k, cut) -> tuple[int, ...] | None:
    """How the input is cut, by every element that is read: a part's index is its own, or that and the part's first."""
    names_, local = ("i", "j"), list(out)
    local[cut] //= k
    layouts = []
    for form, extent in zip(forms, shape, strict=True):
        moves = set()
        for p, *place in product(range(k), *map(range, local)):
            there = list(place)
            there[cut] += p * local[cut]
            mine, all_of_it = index(form, *place), index(form, *there)
            whole = mine == all_of_it
            own = extent % k == 0 and all_of_it == mine + p * (extent // k) and 0 <= mine < extent // k
            moves.add((whole, own, p > 0))
        if all(whole for whole, _, _ in moves):
            layouts.append(False)
        elif all(own for _, own, _ in moves):
            layouts.append(True)
        else:
            return None
    assert names_
    return tuple(d for d, was in enumerate(layouts) if was)


def _beyond(forms, out, shape) -> bool:
    """Whether an element is read that the input does not have."""
    places = list(product(*map(range, out)))
    return any(not 0 <= index(f, *place) < n for f, n in zip(forms, shape, strict=True) for place in places)


def _plainly_read(case) -> bool:
    """Whether the analysis lets elements be read without padding."""
    forms, out, shape, k = case
    try:
        analyse(
            lambda op: [Lambda(("i", "j"), lambda i, j: op[0][tuple(index(f, i, j) for f in forms)])],
            signature([shape], [out]), k,
        )  # fmt: skip
    except ReadsBeyondError:
        return False
    return True


@given(affine())
@settings(max_examples=8 * settings.default.max_examples)
def test_regions_are_the_elements_read(case) -> None:
    """A part of the work reads by the same index on parts of its inputs, against every element of small tensors."""
    forms, out, shape, k = case
    assert _plainly_read(case) != _beyond(forms, out, shape)
    made = analyse(
        lambda op: [Lambda(("i", "j"), lambda i, j: op[0].padded[tuple(index(f, i, j) for f in forms)])],
        signature([shape], [out]), k,
    )  # fmt: skip
    found = {s.name: s.needs[0] for s in made.admitted}
    for cut, name in enumerate("ij"):
        if out[cut] % k:
            assert name not in found
            continue
        dimensions = _right(forms, out, shape, k, cut)
        if name in found:
            assert dimensions == (() if found[name] == WHOLE else (found[name],))
        elif dimensions is not None and len(dimensions) < 2:
            # Refused though right: where an index moves by less than a place, or a part has one element alone.
            assert out[cut] == k or any(f[2] > 1 for f in forms)


def test_values_add_up_reads() -> None:
    """Arithmetic reads what both sides read."""
    a, b = Value(opaque=frozenset("a")), Value(opaque=frozenset("b"))
    assert (a / b).opaque == (1 - a * b + 2).opaque == frozenset("ab")


@pytest.mark.parametrize(("before", "after"), [((6, 4, 6, 6), (2, 64, 2, 2)), ((0, 4), (3,))])
def test_a_reshape_to_other_elements_is_said(before, after) -> None:
    """No runtime makes one, a file may: it ends, and nothing can be cut."""
    found = op_types.strategies(signature([before], [after], "Reshape"), 2)
    assert not found.admitted and "elements cannot become" in found.refused[0].reason


def test_a_reshape_that_makes_no_elements_is_said() -> None:
    """Nor is it cut where its input has some, which no runtime makes either."""
    found = op_types.strategies(signature([(2, 3)], [(0, 4, 5)], "Reshape"), 2)
    assert not found.admitted and found.refused[0].reason == "it makes no elements"


def test_a_reshape_of_nothing() -> None:
    """No element becomes none, in whatever shape: nothing is read, whatever is cut."""
    found = op_types.strategies(signature([(4, 0)], [(0, 6)], "Reshape"), 2)
    assert {each.name for each in found.admitted} <= {"i0", "i1"}
