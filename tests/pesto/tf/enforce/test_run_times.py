"""The order of a run by the times of its trace, and what a session's config gets for a plan."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from tensorflow.core.framework import step_stats_pb2  # noqa: E402

from pesto.tf.enforce.partitions import ExpectedPlacement, examine_times  # noqa: E402
from pesto.tf.enforce.sessions import configure_session  # noqa: E402  # after the quiet load


def chain_of_three(chained: tuple[bool, bool, bool] = (True, True, True)) -> ExpectedPlacement:
    """Ops a, b and c, in this order on one processor."""
    placement: Any = SimpleNamespace(
        graph=SimpleNamespace(names=("a", "b", "c")), lane=np.zeros(3, dtype=np.int64), rank=np.arange(3),
        chained=np.array(chained),
    )  # fmt: skip
    return ExpectedPlacement(placement=placement, loops={})


def trace(*times: tuple[str, int, int], nanoseconds: bool = False) -> Any:
    """The StepStats of a device that ran ops from one microsecond to another, all begun at microsecond 5."""
    stats = step_stats_pb2.StepStats()
    device = stats.dev_stats.add(device="/job:localhost/replica:0/task:0/device:CPU:0")
    for name, start, end in times:
        entry = device.node_stats.add(node_name=name)
        if nanoseconds:
            entry.all_start_nanos, entry.op_start_rel_nanos, entry.op_end_rel_nanos = 5000, 1000 * start, 1000 * end
        else:
            entry.all_start_micros, entry.op_start_rel_micros, entry.op_end_rel_micros = 5, start, end
    return stats


@pytest.mark.parametrize("nanoseconds", [False, True])
def test_an_op_that_began_before_its_neighbour_ended_is_an_inversion(nanoseconds: bool) -> None:
    """In microseconds and in nanoseconds; one that begins in the moment the other ends is none."""
    kept = examine_times(trace(("a", 0, 2), ("b", 2, 4), ("c", 4, 5), nanoseconds=nanoseconds), chain_of_three())
    assert (kept.ops, kept.inversions) == (3, ())
    broken = examine_times(trace(("a", 0, 2), ("b", 2, 4), ("c", 3, 5), nanoseconds=nanoseconds), chain_of_three())
    assert broken.inversions == ("op c ran before b had ended",)


def test_ops_that_cannot_be_timed_are_left_out() -> None:
    """One without a place in the chain, one that was not traced, and a name that was traced twice."""
    assert examine_times(trace(("a", 0, 9), ("c", 1, 2)), chain_of_three((True, True, False))).ops == 1
    assert examine_times(trace(("a", 0, 9), ("c", 1, 2)), chain_of_three()).inversions == (
        "op c ran before a had ended",
    )
    assert examine_times(trace(("a", 0, 9), ("c", 1, 2), ("c", 3, 4)), chain_of_three()).inversions == ()


def test_a_session_gets_as_many_logical_cpus_as_the_plan_names() -> None:
    """No more than its largest number needs, and no fewer than the program asked for."""
    two = {"cpu:0": "/device:CPU:0", "cpu:1": "/device:CPU:1"}
    assert configure_session(None, {"cpu:0": "/device:CPU:0"}).device_count["CPU"] == 1
    assert configure_session(None, two).device_count["CPU"] == 2
    assert configure_session(v1.ConfigProto(device_count={"CPU": 4}), two).device_count["CPU"] == 4
    assert "CPU" not in configure_session(None, {"gpu:0": "/device:GPU:0"}).device_count


def test_a_config_that_would_undo_a_plan_is_refused() -> None:
    """Soft placement, and clusters of XLA; the program's own config is never changed."""
    soft, xla = v1.ConfigProto(allow_soft_placement=True), v1.ConfigProto()
    xla.graph_options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_1
    with pytest.raises(InputError, match="allow_soft_placement=True"):
        configure_session(soft, {})
    with pytest.raises(InputError, match="automatic clustering"):
        configure_session(xla, {})
    plain = v1.ConfigProto()
    configure_session(plain, {"cpu:1": "/device:CPU:1"})
    assert not plain.device_count
