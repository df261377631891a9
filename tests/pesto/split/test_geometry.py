"""Which part of a tensor each worker holds, and what workers send each other, against sets of elements."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.split import geometry
from pesto.split.geometry import ONE, PARTIAL, WHOLE

SHAPE = (4, 6)


def held(shape, layouts, factors):
    """[K] the set of elements of each worker, by cutting an array of their numbers again and again."""
    found = []
    for worker in product(*map(range, factors)):
        part = np.arange(prod(shape)).reshape(shape)
        for layout, k, digit in zip(layouts, factors, worker, strict=True):
            if layout >= 0:
                part = np.split(part, k, axis=layout)[digit]
        found.append(set(part.ravel().tolist()))
    return found


def test_a_cut_of_two() -> None:
    """The costs of the labelling problem, s bytes by k workers: 0, s(1 - 1/k), s(k - 1), s(k - 1), 2s(k - 1)."""
    s, k = prod(SHAPE), (2,)
    assert geometry.elements_to_fetch(SHAPE, (0,), (0,), k) == geometry.elements_to_fetch(SHAPE, (WHOLE,), (1,), k) == 0
    assert geometry.elements_to_fetch(SHAPE, (0,), (1,), k) == s // 2
    assert geometry.elements_to_fetch(SHAPE, (0,), (WHOLE,), k) == s
    assert geometry.elements_to_store(SHAPE, (PARTIAL,), (0,), k) == s
    assert geometry.elements_to_store(SHAPE, (PARTIAL,), (WHOLE,), k) == 2 * s
    assert geometry.elements_to_fetch(SHAPE, (ONE,), (0,), k) == s // 2
    assert geometry.elements_to_fetch(SHAPE, (0,), (ONE,), k) == s // 2
    assert geometry.elements_to_fetch(SHAPE, (ONE,), (ONE,), k) == 0


@pytest.mark.parametrize("k", [2, 3, 4, 8])
def test_a_cut_of_many(k: int) -> None:
    """The same for more workers; what no dimension divides goes straight to all."""
    shape = (2 * k, 3 * k)
    s = prod(shape)
    assert geometry.elements_to_fetch(shape, (0,), (1,), (k,)) * k == s * (k - 1)
    assert geometry.elements_to_fetch(shape, (1,), (WHOLE,), (k,)) == s * (k - 1)
    assert geometry.elements_to_store(shape, (PARTIAL,), (1,), (k,)) == s * (k - 1)
    assert geometry.elements_to_store(shape, (PARTIAL,), (WHOLE,), (k,)) == 2 * s * (k - 1)
    assert geometry.elements_to_store((), (PARTIAL,), (WHOLE,), (k,)) == k * (k - 1)


FACTORS = st.sampled_from([(2,), (3,), (2, 2), (2, 3), (2, 2, 2)])


@st.composite
def cases(draw):
    factors = draw(FACTORS)
    shape = draw(st.sampled_from([(8, 12), (24,), (6, 4, 8), (12, 12)]))

    def layouts(*more):
        found = tuple(draw(st.sampled_from([*range(len(shape)), WHOLE, *more])) for _ in factors)
        return found if geometry.divides(shape, found, factors) else (WHOLE,) * len(factors)

    return shape, factors, layouts(), layouts(), layouts(PARTIAL)


@given(cases())
def test_what_workers_receive_is_what_they_need_and_do_not_hold(case) -> None:
    """Against sets of elements, cut level by level."""
    shape, factors, kept, needed, computed = case
    have, need = held(shape, kept, factors), held(shape, needed, factors)
    assert geometry.elements_to_fetch(shape, kept, needed, factors) == sum(
        len(n - h) for h, n in zip(have, need, strict=True)
    )
    first = geometry.part_starts(shape, needed, factors)
    for w, part in enumerate(need):
        assert min(part) == np.ravel_multi_index(tuple(first[w]), shape)
        assert len(part) == prod(geometry.part_shape(shape, needed, factors))
    made = held(shape, computed, factors)
    times = prod(k for layout, k in zip(computed, factors, strict=True) if layout == PARTIAL)
    straight = sum(times * len(h) - len(h & m) for h, m in zip(have, made, strict=True))
    assert geometry.elements_to_store(shape, computed, kept, factors) <= straight
    if PARTIAL not in computed or geometry.summing_layout(shape, computed, kept, factors) == kept:
        assert geometry.elements_to_store(shape, computed, kept, factors) == straight
