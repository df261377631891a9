"""A branch that holds a whole optimizer ties variables together: said, with what it costs; by hand, and Keras'."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.candidates import formulate
from pesto.planning.solving.colocation_ties import find_ties, split_op
from pesto.planning.solving.flow import SolveOutcome, solve
from pesto.reporting.show import solve_report
from pesto.reporting.show.solve_report import InputNames
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()

import keras  # noqa: E402  # after the quiet load

from pesto.tf.sources import from_keras, sources  # noqa: E402

QUICK = Settings(time_limit_s=0, solver="list")
INPUTS = InputNames(source=Source(model="nmt"), cluster="v100x2-nvlink")
MB = 10**6


@pytest.fixture
def case(make_graph, make_cluster, make_costs):
    """Two variables of 1 and 3 MB, a gradient of 1 ms of each, backwards, and an op of 4 ms that updates both."""
    own = {"group": "tie", "kinds": ("gpu",)}
    graph = make_graph([
        {"name": "v", "param": MB, **own},
        {"name": "w", "param": 3 * MB, **own},
        {"name": "v/slot", "param": MB, **own},
        {"name": "v/read", "inputs": ("v",), "bytes": MB, **own},
        {"name": "w/read", "inputs": ("w",), "bytes": 3 * MB, **own},
        {"name": "w/gradient", "inputs": ("w/read",), "bytes": 3 * MB, "s": 1e-3, "kinds": ("gpu",)},
        {"name": "v/gradient", "inputs": ("v/read",), "bytes": MB, "s": 1e-3, "kinds": ("gpu",)},
        {"name": "cond", "inputs": ("v", "w", "v/slot", "v/gradient", "w/gradient"), "s": 4e-3, **own},
        {"name": "after", "control": ("cond",), "kinds": ("gpu",)},
    ])  # fmt: skip
    graph = replace(graph, types=("Op", "If"), type_of=np.array([name == "cond" for name in graph.names]))
    cluster = make_cluster()
    return graph, cluster, make_costs(graph, cluster)


def test_a_branch_in_pieces_takes_what_its_longest_piece_takes(case):
    """By hand: of 5 MB, 2 are v's and its slot's, so 4 ms are 1.6 and 2.4; with 1 ms before, the second ends at 3.4.

    Three ops of 1 us are on its way.
    """
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    (tie,) = find_ties(graph, problem, 5_000_000)
    assert (tie.op, tie.type, tie.variables, tie.ops) == ("cond", "If", 3, 6)
    assert (tie.tied_bytes, tie.all_bytes, tie.cut_ticks) == (5 * MB, 5 * MB, 3_403_000)
    assert tie.cost == pytest.approx(1 - 3.403 / 5)
    pieces = split_op(graph, problem, 7)
    assert pieces.tasks == 10 and sorted(pieces.duration[[7, 9]].max(axis=1).tolist()) == [1_600_000, 2_400_000]
    one, other = pieces.group[[0, 2, 3]], pieces.group[[1, 4]]
    assert len(set(one.tolist())) == len(set(other.tolist())) == 1 and one[0] != other[0]
    assert {int(pieces.group[7]), int(pieces.group[9])} == {int(one[0]), int(other[0])}
    into = [set(pieces.src[pieces.dst == k].tolist()) for k in (7, 9)]
    assert {0, 2, 6} in into and {1, 5} in into  # each waits for its own gradient
    assert set(pieces.src[pieces.dst == 8].tolist()) == {7, 9}


def test_what_ties_little_is_no_tie(case):
    """A larger variable is elsewhere; the op has another type; there is one variable. And untimed it has no cost."""
    graph, cluster, costs = case
    problem = formulate(graph, costs, cluster, QUICK)
    assert not find_ties(replace(graph, types=("Op", "ResourceApplyAdam")), problem, 1)
    bytes_elsewhere = np.where(np.arange(graph.ops) == 8, 6 * MB, graph.param_bytes)
    assert not find_ties(replace(graph, param_bytes=bytes_elsewhere), problem, 1)
    assert not find_ties(replace(graph, param_bytes=np.where(np.arange(graph.ops) == 1, 3 * MB, 0)), problem, 1)
    (untimed,) = find_ties(graph, problem, 5_000_000, timed=False)
    assert untimed.cut_ticks is None and untimed.cost == 0 and "Keras" not in str(untimed)


@pytest.mark.parametrize("kind", ["While", "StatelessWhile"])
def test_a_loop_is_no_optimizer(case, kind):
    """No time is said, as a variable has no rounds of its own, and no optimizer is the remedy."""
    graph, cluster, costs = case
    looped = replace(graph, types=("Op", kind))
    (tie,) = find_ties(looped, formulate(looped, costs, cluster, QUICK), 5_000_000)
    assert tie.cut_ticks is None and tie.cost == 0
    assert str(tie).endswith("3 more ops to one device - " + tie.remedy) and "unroll the loop" in tie.remedy


def towers(**how: Any) -> Any:
    """Two towers of three Dense(512), trained by Adam."""
    keras.utils.set_random_seed(1)
    policy = how.pop("policy", None)
    x, ends = keras.Input((256,)), []
    for _ in range(2):
        y = x
        for _ in range(3):
            y = keras.layers.Dense(512, "relu", dtype=policy)(y)
        ends.append(y)
    model = keras.Model(x, keras.layers.Dense(4, dtype="float32")(keras.layers.Concatenate(dtype="float32")(ends)))
    adam = keras.optimizers.Adam(**how)
    scaled = keras.optimizers.LossScaleOptimizer(adam) if policy and not how else adam
    model.compile(scaled, "mse", jit_compile=False, auto_scale_loss=False)
    return from_keras(model, 256)


def solved(graph: Any) -> SolveOutcome:
    cluster = load_cluster("v100x2-nvlink")
    return solve(graph, cluster, load_costs(graph, cluster, None), QUICK, lambda _: None)


@pytest.mark.parametrize(
    ("how", "op", "variables"),
    [
        pytest.param({"gradient_accumulation_steps": 4}, "adam/cond", 58, marks=pytest.mark.slow),
        ({"policy": "mixed_float16"}, "cond", 46),
    ],
)
def test_keras_optimizers_in_a_branch_are_told(
    how: dict[str, Any], op: str, variables: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the page, in the JSON and from Python: the op, nearly all variables, their bytes, and what cutting gives.

    The branch is one that is left whole.
    """
    monkeypatch.setattr(sources, "divide_branches", lambda *_, **__: {})
    graph = towers(**how)
    outcome = solved(graph)
    (tie,) = outcome.ties
    assert (tie.op, tie.type, tie.variables) == (op, "If", variables)
    assert tie.all_bytes - 16 <= tie.tied_bytes <= tie.all_bytes == graph.param_bytes.sum()
    assert tie.cut_ticks is not None and tie.cost > 0.02
    (told,) = solve_report.solve_object(outcome, {}, Path("plan.json"))["ties"]
    assert (told["op"], told["bytes"], told["cost"]) == (op, tie.tied_bytes, tie.cost)
    assert told["cut_s"] == pytest.approx(tie.cut_ticks * 1e-9) and "auto_scale_loss=False" in told["remedy"]
    page = solve_report.solve_page(outcome, {}, Path("plan.json"), INPUTS)
    assert f"\ntie           {op} (If) ties {variables} variables" in page and "(modelled)" in page
    api.solve(graph, time_limit_s=0, solver="list")
    assert f"ties {variables} variables" in caplog.text


@pytest.mark.parametrize(
    "how",
    [
        *(
            pytest.param(how, marks=pytest.mark.slow)
            for how in (
                {},
                {"policy": "mixed_float16", "loss_scale_factor": 1024.0},
                {"policy": "mixed_float16"},
            )
        ),
        {"gradient_accumulation_steps": 4},
    ],
)
def test_an_optimizer_without_a_branch_ties_nothing(how: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Plain fp32, mixed precision by the remedy, and branches that are divided: no line, and no warning."""
    graph = towers(**how)
    outcome = solved(graph)
    assert outcome.ties == () and solve_report.solve_object(outcome, {}, Path("plan.json"))["ties"] == []
    assert "\ntie " not in solve_report.solve_page(outcome, {}, Path("plan.json"), INPUTS)
    api.solve(graph, time_limit_s=0, solver="list")
    assert "ties" not in caplog.text
