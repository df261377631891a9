"""Variables whole and in parts: one is the other."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pesto.split import geometry
from pesto.split.layouts import WHOLE
from pesto.tf.partition.part_variables import PartVariable, in_parts, whole


@st.composite
def variables(draw):
    factors = draw(st.sampled_from([(2,), (3,), (2, 2), (2, 3)]))
    shape = draw(st.sampled_from([(), (12,), (6, 4), (12, 1, 6)]))
    fitting = [
        layouts
        for layouts in product((WHOLE, *range(len(shape))), repeat=len(factors))
        if geometry.divides(shape, layouts, factors)
    ]
    parts = tuple(f"w{k}/v" for k in range(int(np.prod(factors))))
    return PartVariable(
        name="v", parts=parts, dtype="float32", shape=shape, layouts=draw(st.sampled_from(fitting)), factors=factors
    )


@given(variables())
def test_parts_are_the_whole(variable):
    """A checkpoint of the whole, cut and put together, is itself; each part is of the shape that a worker holds."""
    value = np.arange(np.prod(variable.shape)).reshape(variable.shape).astype(np.float32)
    parts = in_parts([variable], {"v": value, "other": value})
    assert set(parts) == set(variable.parts)
    assert {part.size for part in parts.values()} == {variable.part_elements}
    joined = whole([variable], parts)["v"]
    assert joined.dtype == value.dtype and (joined == value).all()


def test_what_is_not_there_is_left_out():
    """A checkpoint without a part has no whole."""
    variable = PartVariable(name="v", parts=("w0/v", "w1/v"), dtype="float32", shape=(2,), layouts=(0,), factors=(2,))
    assert whole([variable], {"w0/v": np.zeros(1)}) == {} == in_parts([variable], {})
