"""What is said of a graph that a plan is not for: the batch, else the optimizer, else which ops are more or fewer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pesto
from pesto.core.plans.graph_differences import differences

TOWERS = Path(__file__).resolve().parents[3] / "data/two-towers.graph.json"
STEP = ("data", "dense_1/MatMul", "adam/Sqrt", "adam/Const", "adam/mul_1")


def graph(names: Sequence[str], batch: int | None = None) -> pesto.Graph:
    """A graph of that many ops without edges."""
    n, none = len(names), np.zeros(0, dtype=np.int64)
    whole, zeros = pesto.load_graph(TOWERS), np.zeros(n, dtype=np.int64)
    return replace(
        whole, names=tuple(names), type_of=zeros, tensor_op=none, tensor_bytes=none, src=none, dst=none, tensor=none,
        control_src=none, control_dst=none, group=np.full(n, -1), runs_on=np.ones((n, len(whole.kinds)), dtype=bool),
        param_bytes=zeros, flops=zeros.astype(float), moved_bytes=zeros, launches=zeros.astype(bool), given_kinds=(),
        given_s=np.empty((n, 0)), batch=batch,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "here", "said"),
    [
        ((8, 16), STEP, "it was planned with batch=8, this is batch=16"),
        ((8, None), STEP[1:], "the plan has an open batch (batch=8), this step one of a fixed size"),
        ((None, 8), STEP[1:], "this step has an open batch (batch=8), the plan one of a fixed size"),
        ((8, 8), [f"{name}_3" for name in STEP], "its ops are the same by name, of other sizes, types of data or pins"),
        (
            (8, 8),
            [name.replace("adam", "SGD_2") for name in STEP],
            "the plan is for the optimizer adam, this step has SGD",
        ),
        (
            (8, 8),
            [name.replace("adam", "adam_w") for name in STEP],
            "the plan is for the optimizer adam, this step has adam_w",
        ),
        (
            (8, 8),
            [*STEP, "adam_1/clip_by_norm/mul", "adam_1/clip_by_norm/mul_1", "adam_1/clip_by_norm/Const"],
            "its optimizer (adam) is set otherwise: 3 ops more (2 clip_by_norm/mul)",
        ),
        (
            (8, 8),
            [*STEP[:2], "adam/Sqrt/pesto_part_0", "adam/Sqrt/pesto_part_1", *STEP[3:]],
            "its branch adam/Sqrt is divided into one for each variable, and whole in the plan, as older versions left "
            "it",
        ),
        ((8, 8), [*STEP[1:], "relu"], "1 ops more (1 relu) and 1 ops fewer (1 data)"),
    ],
)
def test_the_first_cause_that_shows_is_named(batch: tuple, here: Sequence[str], said: str) -> None:
    """Numbers by which traces tell their ops apart do not count."""
    assert differences(STEP, batch[0], graph(here, batch[1])) == said


def test_check_names_the_batch() -> None:
    """`pesto.check` of a plan for one batch on the graph of another."""
    eight, sixteen = (replace(pesto.load_graph(TOWERS), batch=size) for size in (8, 16))
    plan = pesto.solve(eight, solver="list", search=False, time_limit_s=0)
    other = replace(sixteen, moved_bytes=2 * sixteen.moved_bytes)
    with pytest.raises(pesto.MismatchError, match=r"planned with batch=8, this is batch=16 - give a batch of 8"):
        pesto.check(plan, other)
