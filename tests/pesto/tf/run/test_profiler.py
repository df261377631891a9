"""Measured op times of small steps on this machine's CPU."""

from typing import Any

import numpy as np
import pytest

from pesto.core.costs.disturbance import CpuSnapshot, DisturbanceWatch
from pesto.core.errors import InputError, NothingFoundError, UsageError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.importer.importer import build_graph  # noqa: E402
from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.nodes.captured import CapturedStep  # noqa: E402
from pesto.tf.run import profiler  # noqa: E402
from pesto.tf.run.runnable import make_runnable  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def products() -> CapturedStep:
    """Two products, of 2 x 2 and of 256 x 256, and an update of the larger."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [256, 256], name="x")
        w = v1.get_variable("w", [256, 256], use_resource=True)
        large = tf.matmul(x, w, name="large")
        small = tf.matmul(tf.ones([2, 2]), large[:2, :2], name="small")
        update = w.assign_sub(large * 1e-6, name="update")
        tf.group(small, update, name="step")
    return sources.capture_v1(graph, ["step"])


UNSEEN = DisturbanceWatch(look=lambda: None)
"""Nobody looks at what else is busy."""


def profiled(captured: CapturedStep, **options: Any) -> Any:
    graph = build_graph(captured)
    options.setdefault("watch", UNSEEN)
    return graph, profiler.profile(graph, make_runnable(captured, resolve_shapes(captured, None)), **options)


def test_every_op_that_runs_has_a_time_and_larger_products_take_longer() -> None:
    """Times are positive and the 256 x 256 product takes longer than the 2 x 2; a feed takes no time."""
    graph, found = profiled(products(), iterations=12)
    seconds = dict(zip(graph.names, found.seconds.tolist(), strict=True))
    assert seconds["large"] > seconds["small"] > 0
    assert seconds["x"] == 0 and seconds["update"] > 0
    assert (found.median >= found.low).all() and (found.mean >= found.seconds).all()
    assert not np.isnan(found.spread).any() and not np.isnan(found.raw_spread).any()
    assert found.fingerprint == graph.fingerprint() and found.iterations == 12 and found.device
    assert (found.low >= 0).all() and (found.times == found.low).all()
    assert found.noise.excess == pytest.approx(max(found.seconds.sum() / found.low.sum() - 1, 0))
    assert (found.noise.runs, found.noise.refused, found.noise.others_cores, found.noise.kept) == (12, 0, None, False)


def busy(cores: float, **options: Any) -> DisturbanceWatch:
    """A machine of two cores on which each look finds that others used so many since the last, a second ago."""
    looks = iter(range(1000))

    def look() -> CpuSnapshot:
        k = next(looks)
        return CpuSnapshot(at_s=k, busy_s=k * (1 + cores), own_s=k, others={7: ("make", k * cores)})

    return DisturbanceWatch(look=look, clock=lambda: 0.0, cores=2, **options)


def test_a_busy_machine_is_not_profiled_unless_that_is_asked_for() -> None:
    """With 1.5 cores taken no run counts; kept, they do, and the profile says so."""
    with pytest.raises(NothingFoundError, match=r"1\.50 of 2 cores \(make 1\.50\), so that only 0 of 4 runs count"):
        profiled(products(), iterations=4, warmup=0, watch=busy(1.5))
    _, found = profiled(products(), iterations=4, warmup=0, watch=busy(1.5, keep=True))
    assert found.noise.kept and found.noise.others_cores == pytest.approx(1.5)
    assert found.noise.busy == (("make", pytest.approx(1.5)),)
    _, found = profiled(products(), iterations=4, warmup=0, watch=busy(0.05))
    assert not found.noise.kept and found.noise.refused == 0


def test_medians_by_hand() -> None:
    """Of an odd number the middle one, of an even number the mean of two; samples that are missing do not count."""
    nan = np.nan
    samples = np.array([[5.0, 4.0, nan, nan], [1.0, 1.0, 7.0, nan], [3.0, 2.0, nan, nan], [9.0, nan, nan, nan]])
    assert np.array_equal(profiler.medians(samples), [4.0, 2.0, 7.0, nan], equal_nan=True)
    assert np.array_equal(profiler.medians(samples[:1]), [5.0, 4.0, nan, nan], equal_nan=True)


def test_lower_deciles_by_hand() -> None:
    """Of twenty the second smallest, of ten the smallest, of two the smaller; none of none."""
    nan = float("nan")
    samples = np.full((20, 4), nan)
    samples[:, 0] = np.arange(20, 0, -1)
    samples[:10, 1] = np.arange(10, 0, -1)
    samples[3:5, 2] = (5.0, 4.0)
    found = profiler.lower_decile(samples)
    assert found[:3].tolist() == [2.0, 1.0, 4.0] and np.isnan(found[3])


def test_a_gpu_is_warm_when_its_runs_no_longer_get_quicker() -> None:
    """Runs take 100, 90, ... 10 ms and then 10 ms: the last five before the end are no quicker than the five before."""
    took = iter([0.1 - 0.01 * k for k in range(9)] + [0.01] * 100)
    now = [0.0]

    def run() -> None:
        now[0] += next(took)

    # After run 14 the five before the last five begin with run 5; run 10 is the first of 10 ms.
    assert profiler.warm_up(run, 5, 50, lambda: now[0]) == 15
    assert profiler.warm_up(run, 5, 5, lambda: now[0]) == 5
    assert profiler.warm_up(run, 0, 0, lambda: now[0]) == 0
    falling = iter([0.5**k for k in range(100)])
    assert profiler.warm_up(lambda: now.__setitem__(0, now[0] + next(falling)), 5, 20, lambda: now[0]) == 20


def test_trimming_drops_the_slowest_tenth() -> None:
    """Nine ones and one 100: the mean is 1 without spread; raw, the spread is that of all ten."""
    samples = np.array([[1.0]] * 9 + [[100.0]])
    mean, spread = profiler.trimmed_mean(samples)
    assert mean.tolist() == [1.0] and spread.tolist() == [0.0]
    assert samples[9, 0] == 100.0  # the samples themselves are kept for the raw spread


def test_trimming_keeps_what_little_there_is() -> None:
    """One sample stays, two lose the slower, none gives NaN."""
    nan = float("nan")
    mean, spread = profiler.trimmed_mean(np.array([[1.0, 3.0, nan], [nan, 2.0, nan]]))
    assert mean[:2].tolist() == [1.0, 2.0] and spread[:2].tolist() == [0.0, 0.0]
    assert np.isnan(mean[2]) and np.isnan(spread[2])


def test_spread_is_deviation_over_mean() -> None:
    """Ten samples 1 and 3 by turns and one huge: mean 2, deviation 1, spread a half."""
    _, spread = profiler.trimmed_mean(np.array([[1.0], [3.0]] * 4 + [[9.0]]))
    assert spread.tolist() == [0.5]


GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


def traced(*entries: tuple[str, str, int]) -> Any:
    """A trace as TensorFlow makes it: what the executor ran in nanoseconds, what streams did in whole microseconds."""
    stats = v1.RunMetadata().step_stats
    for device, name, nanos in entries:
        executed = device.startswith("/job")
        taken = {"op_end_rel_micros": nanos // 1000} | ({"op_end_rel_nanos": nanos} if executed else {})
        stats.dev_stats.add(device=device).node_stats.add(node_name=name, **taken)
    return stats


def recorded(*traces: Any) -> Any:
    """[traces, 3] seconds of the ops a, b and c."""
    rows = np.full((len(traces), 2, 3), np.nan)
    for row, stats in zip(rows, traces, strict=True):
        profiler._record_iteration(row, {"a": 0, "b": 1, "c": 2}, stats, "gpu")
    return profiler.combine_op_seconds(rows)


def test_kernels_and_copies_of_a_gpu_trace_count_instead_of_their_launch() -> None:
    """Two kernels and a copy within a device are summed, each once; without any an op takes its launch; no host."""
    row = recorded(traced(
        (GPU, "a", 9_000), (GPU, "b", 7_000), ("/job:localhost/replica:0/task:0/device:CPU:0", "b", 1_000_000),
        ("/device:GPU:0/stream:all", "a:MatMul", 100_400), ("/device:GPU:0/stream:14", "a:MatMul", 100_400),
        ("/device:GPU:0/stream:all", "a:MatMul", 50_700), ("/device:GPU:0/stream:14", "a:MatMul", 50_700),
        ("/device:GPU:0/memcpy", "a:MatMul", 20_000), ("/device:GPU:0/stream:14<MemcpyD2D>", "a:MatMul", 20_000),
        ("/device:GPU:0/sync", "cuStreamSynchronize", 400_000), ("/device:GPU:0/stream:", "Memset", 2_000),
    ))[0]  # fmt: skip
    # Whole microseconds, cut off: 100, 50 and 20, and half of one each.
    assert row[:2].tolist() == pytest.approx([171.5e-6, 7e-6]) and np.isnan(row[2])


def test_the_executors_time_of_what_a_stream_has_is_that_of_its_launch() -> None:
    """Of ten runs the lower decile; an op that no stream has was not launched, and a CPU's trace has no launches."""
    runs = [traced((GPU, "a", 5_000 + k), (GPU, "b", 7_000), ("/device:GPU:0/stream:all", "a:MatMul", 90_000))
            for k in range(10)]  # fmt: skip
    rows = np.full((10, 2, 3), np.nan)
    for row, stats in zip(rows, runs, strict=True):
        profiler._record_iteration(row, {"a": 0, "b": 1, "c": 2}, stats, "gpu")
    found = profiler.launch_seconds(rows)
    assert found is not None and found[0] == pytest.approx(5e-6) and np.isnan(found[1:]).all()
    rows[:, 1] = np.nan
    assert profiler.launch_seconds(rows) is None


def test_runs_of_which_a_trace_lost_kernels_are_no_samples_of_their_ops() -> None:
    """The launch of an op whose kernel is missing would be its lower decile."""
    whole = traced((GPU, "a", 9_000), ("/device:GPU:0/stream:all", "a:MatMul", 800_000))
    samples = recorded(traced((GPU, "a", 9_000)), *[whole] * 9)
    assert np.isnan(samples[0, 0])
    assert profiler.lower_decile(samples)[0] == pytest.approx(800.5e-6)


def test_a_captured_keras_step_runs_with_all_of_its_variables() -> None:
    """Variables that the step closed over are initialised; every op has a time."""
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse", jit_compile=False)
    captured = sources.capture_keras(model, 2, static=True)
    graph, found = profiled(captured, iterations=3, warmup=1)
    fed = {graph.types[graph.type_of[i]] for i in np.flatnonzero(found.seconds == 0)}
    assert not np.isnan(found.seconds).any() and "Placeholder" in fed


def test_references_and_closed_over_values_run_too() -> None:
    """A v1 graph with reference variables, and a function that closes over an eager constant."""
    graph = tf.Graph()
    with graph.as_default():
        w = v1.get_variable("w", [3], use_resource=False)
        step = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w)))
    _, found = profiled(sources.capture_v1(graph, [step]), iterations=2, warmup=0)
    assert not np.isnan(found.seconds).any()
    outside = tf.constant(np.arange(5000.0, dtype=np.float32))
    captured = sources.capture_function(lambda x: x + outside, tf.TensorSpec([5000]))
    _, found = profiled(captured, iterations=2, warmup=0)
    assert (found.seconds > 0).any()


def test_a_step_that_cannot_run_is_one_line() -> None:
    """An op that fails at run time is an InputError, and no iterations are a UsageError."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [2], name="x")
        with tf.control_dependencies([v1.Assert(tf.reduce_all(x > 5.0), [x])]):
            tf.identity(x, name="y")
    captured = sources.capture_v1(graph, ["y"])
    with pytest.raises(InputError, match="its own check Assert refuses the batch") as caught:
        profiled(captured, iterations=1)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="at least 1"):
        profiled(captured, iterations=0)
