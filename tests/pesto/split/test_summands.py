"""Tensors kept as summands: linear ops alone may read them, and what a split sends and computes is as counted."""

from dataclasses import replace

import by_parts
import numpy as np
import pytest

from pesto.core.errors import VerificationError
from pesto.core.source import Source
from pesto.split.division import readers
from pesto.split.files.recount import strategy_fault
from pesto.split.files.split_check import verify_split
from pesto.split.files.split_file import dumps_split, loads_split
from pesto.split.geometry import PARTIAL, WHOLE
from pesto.split.op_strategy import SUMMANDS_WAY, OpStrategy, summands_strategy, uncut_strategy
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.split.typed_graph import Operand, Signature
from pesto.split.worker_parts import REDUCE, build_worker_parts
from pesto.tf import named_sources

SHAPE = (6, 4)


def signature(op_type, inputs, outputs=(SHAPE,), attributes=()):
    """One op of float32 inputs of one shape, behind them operands that are given."""
    operands = [each if isinstance(each, Operand) else Operand(SHAPE, "float32") for each in inputs]
    return Signature(op_type, tuple(attributes), tuple(operands), tuple((shape, "float32") for shape in outputs))


LINEAR = [
    signature("AddV2", [0, 0]), signature("Add", [0, 0]), signature("Sub", [0, 0]),
    signature("AddN", [0, 0, 0], attributes=[("N", 3)]), signature("Identity", [0]), signature("Neg", [0]),
    signature("Reshape", [0, Operand((2,), "int32", (3, 8))], outputs=[(3, 8)]),
    signature("Transpose", [0, Operand((2,), "int32", (1, 0))], outputs=[(4, 6)]),
    signature("ExpandDims", [0, Operand((), "int32", 1)], outputs=[(6, 1, 4)]),
]  # fmt: skip


@pytest.mark.parametrize("linear", LINEAR, ids=[each.type for each in LINEAR])
def test_results_for_summands_add_up_to_the_result(linear) -> None:
    """Three workers have a summand of every input each and run the op on TensorFlow; the check by other code agrees."""
    strategy = summands_strategy(linear, uncut_strategy(linear))
    summed = [at for at, needs in enumerate(strategy.needs) if needs == (PARTIAL,)]
    each = [by_parts.operands(linear, seed) for seed in range(3)]
    whole = [sum(given[at] for given in each) if at in summed else each[0][at] for at in range(len(linear.inputs))]
    total = sum(by_parts.run(linear, given)[0] for given in each)
    np.testing.assert_allclose(total, by_parts.run(linear, whole)[0], rtol=1e-5)
    assert strategy_fault(linear, strategy, (3,), once=False) == ""


@pytest.mark.parametrize(
    "other",
    [
        signature("Mul", [0, 0]), signature("Relu", [0]), signature("Exp", [0]), signature("Maximum", [0, 0]),
        signature("Reshape", [0, Operand((2,), "int32")], outputs=[(3, 8)]),
        signature("AddV2", [0, Operand(SHAPE, "float32", bounded=(0,))]),
    ],
    ids=["Mul", "Relu", "Exp", "Maximum", "shape not known", "extent of data"],
)  # fmt: skip
def test_other_ops_cannot_run_on_summands(other) -> None:
    """Neither by the search nor by the check, whatever a file says."""
    assert summands_strategy(other, uncut_strategy(other)) is None
    needs = tuple((PARTIAL,) if operand.dtype == "float32" else (WHOLE,) for operand in other.inputs)
    claimed = OpStrategy((SUMMANDS_WAY,), needs, ((PARTIAL,),), reducer="sum")
    assert strategy_fault(other, claimed, (2,), once=False)


def test_means_and_maxima_are_no_summands() -> None:
    """A cut whose parts are means, or of which the greatest counts, is not followed by one on summands."""
    add = LINEAR[0]
    for before in (
        replace(uncut_strategy(add), reducer="sum", scaled=True),
        replace(uncut_strategy(add), reducer="max"),
    ):
        assert summands_strategy(add, before) is None


@pytest.fixture(scope="module")
def shaped():
    """A recurrent step: each weight has a gradient for every time step."""
    return named_sources.load_typed(Source(model="rnnlm", variant="tiny"))[1]


@pytest.fixture(scope="module", params=[(2,), (2, 2)], ids=["2", "2x2"])
def split(request, shaped):
    """Data parallelism."""
    return divide(shaped, request.param, "data-parallel", Rules(), seconds=60)


def kept_as_summands(shaped, split):
    """(op, output) of the tensors that are kept so and read."""
    kept = split.division.kept
    return [(op, k) for op, k in readers(shaped) if PARTIAL in kept[op][k]]


def test_gradients_of_time_steps_are_added_up_before_they_are_sent(shaped, split) -> None:
    """No more is sent than a sum and a copy of each gradient, and a little for what is tiny; and the file is valid."""
    assert len(kept_as_summands(shaped, split)) > 10
    workers, held = split.division.workers, split.parameter_bytes
    assert split.moved_bytes < 2.2 * (workers - 1) * held
    text = dumps_split(shaped, split, time_limit_s=60.0)
    assert verify_split(loads_split(text, "split"), shaped) == split.division
    parts = build_worker_parts(shaped, split.division)
    assert parts.moved_bytes() == split.moved_bytes


def test_a_result_that_lies_in_summands_is_summed(shaped, split) -> None:
    """A fetched tensor is brought to the first worker, whole, though the step itself never needs it so."""
    op, output = kept_as_summands(shaped, split)[0]
    parts = build_worker_parts(shaped, split.division, results=[(op, output)])
    (port,) = parts.results
    behind, made_of = [port[0]], set()
    while behind:
        part = behind.pop()
        made_of.add(parts.parts[part].kind)
        if parts.parts[part].op == op and parts.parts[part].kind:
            behind += parts.src[parts.dst == part].tolist()
    assert REDUCE in made_of and parts.output_shape(*port) == shaped.signature(op).outputs[output][0]


def test_a_reader_that_is_not_linear_is_found(shaped, split) -> None:
    """A file whose reader takes summands for the sum, or a sum for summands, is refused."""
    (op, output), *_ = kept_as_summands(shaped, split)
    whole = (WHOLE,) * len(split.division.factors)
    rows = [list(row) for row in split.division.kept]
    rows[op][output] = whole
    wrong = replace(split, division=replace(split.division, kept=tuple(map(tuple, rows))))
    with pytest.raises(VerificationError, match="needs input"):
        verify_split(loads_split(dumps_split(shaped, wrong, time_limit_s=60.0), "split"), shaped)
    plain = next((i, at) for (i, at) in readers(shaped) if shaped.signature(i).type == "MatMul" and at == 0)
    rows = [list(row) for row in split.division.kept]
    rows[plain[0]][0] = (PARTIAL,) * len(split.division.factors)
    wrong = replace(split, division=replace(split.division, kept=tuple(map(tuple, rows))))
    with pytest.raises(VerificationError, match="cannot lie as"):
        verify_split(loads_split(dumps_split(shaped, wrong, time_limit_s=60.0), "split"), shaped)
