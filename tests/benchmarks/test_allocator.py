"""TensorFlow's allocator records of planned steps: by hand, against predictions, and which kernels work in place."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.core.costs.analytical import model_costs
from pesto.core.graph import Graph
from pesto.core.memory import IN_PLACE, measure
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, formulate
from pesto.planning.solving.tracker import SolveRecord, make_plan
from pesto.tf.tensorflow_start import load_tensorflow
from solvers.bounds.evidence import FullBound
from solvers.heuristics.devices_of_location import place_in_turn
from solvers.result import Options

tf = load_tensorflow()
v1 = tf.compat.v1

from benchmarks.allocator.allocations import TracedSteps, held, trace  # noqa: E402
from benchmarks.allocator.copies import pin  # noqa: E402
from benchmarks.allocator.retimed import retimed  # noqa: E402
from benchmarks.allocator.workspaces import workspaces  # noqa: E402
from pesto.tf import named_sources  # noqa: E402
from pesto.tf.apply_placement.targets import ApplyOptions as EnforceOptions  # noqa: E402
from pesto.tf.enforce.rewrite import rewrite_with_report  # noqa: E402
from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.private import op_def  # noqa: E402
from pesto.tf.run.runnable import RunnableStep  # noqa: E402
from pesto.tf.session_config import disable_optimizers  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def planned(graph: Graph, where: Callable[[Any], Any]) -> tuple[Candidate, Plan]:
    """The placement [n] that `where` gives for the problem, in list order, on two logical CPUs."""
    cluster, settings = load_cluster("cpux2"), Settings()
    costs = model_costs(graph, cluster)
    problem = formulate(graph, costs, cluster, settings)
    made = CandidateEvaluator.of(graph, problem).placed("given", "given", where(problem))
    record = SolveRecord(graph=graph, cluster=cluster, costs=costs, settings=settings, bound=FullBound(0, "none"))
    return made, make_plan(record, made, {"given": made})


def on_second(graph: Graph, names: tuple[str, ...]) -> Callable[[Any], Any]:
    return lambda _: np.isin(graph.names, names).astype(np.int64)


def source(tmp_path: Path, build: Callable[[], None], *fetch: str) -> Source:
    """A GraphDef file of what `build` puts into a graph."""
    graph = tf.Graph()
    with graph.as_default():
        build()
    path = tmp_path / "step.pb"
    path.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    return Source(file=path, fetch=fetch)


def some_step(step: RunnableStep, plan: Plan, right: Callable[[TracedSteps, Any], bool], **how: Any) -> bool:
    """Whether one of fifty traced steps is right: on a busy machine most have a device that was held up."""
    runs = (trace(step, plan, steps=5, **how) for _ in range(10))
    return any(right(traced, stats) for traced in runs for stats in traced.steps)


def two_layers() -> None:
    """sum(tanh(x w) w): x and w of 1024 bytes, and an axis of 8."""
    x = v1.placeholder(tf.float32, [16, 16], name="x")
    w = v1.get_variable("w", [16, 16], use_resource=True)
    y = tf.matmul(tf.tanh(tf.matmul(x, w, name="h"), name="t"), w, name="y")
    tf.reduce_sum(y, name="loss")


def test_bytes_of_one_device_by_hand(tmp_path: Path) -> None:
    """w and the axis for ever; x and h, then t in h's place and y, are 2048 at a time; loss adds 4 to y's 1024.

    Records have whole microseconds, so a quick step may show some of them in another order.
    """
    graph, step = named_sources.load_runnable(source(tmp_path, two_layers, "loss"))
    made, plan = planned(graph, on_second(graph, ()))

    def right(traced: TracedSteps, stats: Any) -> bool:
        one = held(traced, stats, "cpu:0")
        assert (one.variables, one.constants) == (1024, 8)
        assert int(one.level[-1]) == 1032  # nothing of the step is left
        return sorted(set((one.level - 1032).tolist())) == [0, 4, 1024, 1028, 2048]

    assert some_step(step, plan, right)
    traced = trace(step, plan, steps=1)
    assert measure(graph, made.timeline).peak.tolist() == [1032 + 2048, 0]
    empty = held(traced, traced.steps[0], "cpu:1")
    assert (empty.variables, empty.constants, empty.peak) == (0, 0, 0)


def test_what_is_received_lies_on_the_device_that_reads_it(tmp_path: Path) -> None:
    """With y and loss on cpu:1, that device has copies of t and w beside y; cpu:0 is done with x before t is sent."""
    graph, step = named_sources.load_runnable(source(tmp_path, two_layers, "loss"))
    made, plan = planned(graph, on_second(graph, ("y", "Const", "loss")))

    def right(traced: TracedSteps, stats: Any) -> bool:
        first, second = (held(traced, stats, device) for device in ("cpu:0", "cpu:1"))
        assert (first.variables, first.constants, second.variables, second.constants) == (1024, 0, 0, 8)
        return (first.peak, second.peak) == (1024 + 2048, 8 + 3072)

    assert some_step(step, plan, right)
    assert measure(graph, made.timeline).peak.tolist() == [1024 + 2048, 8 + 3072]


def assigned() -> None:
    """v takes over the buffer of v + 1."""
    v = v1.get_variable("v", [16, 16], use_resource=True)
    v1.assign(v, v.read_value() * tf.constant(2.0), name="set")


def test_a_variable_that_takes_a_new_buffer_lets_go_of_the_old(tmp_path: Path) -> None:
    """v's 1024 bytes and the product's are both there until the assignment; afterwards one of them is v."""
    graph, step = named_sources.load_runnable(source(tmp_path, assigned, "set"))
    _, plan = planned(graph, on_second(graph, ()))
    traced = trace(step, plan, steps=3)
    for stats in traced.steps:
        one = held(traced, stats, "cpu:0")
        assert (one.variables, one.peak - one.constants, one.level[-1] - one.constants) == (1024, 2048, 1024)


def convolution() -> None:
    """Both gradients of a 3 x 3 convolution of 4 images of 8 x 8 x 3."""
    x = v1.placeholder(tf.float32, [4, 8, 8, 3], name="x")
    w = v1.get_variable("w", [3, 3, 3, 5], use_resource=True)
    y = tf.nn.conv2d(tf.nn.tanh(x), w, 1, "SAME")
    tf.group(*tf.gradients(tf.reduce_sum(y * y), [x, w]), name="both")


def test_scratch_is_predicted_and_can_be_left_out(tmp_path: Path) -> None:
    """The im2col buffers of both gradients, some 20 MB for tensors of kB, are predicted to the byte."""
    where = source(tmp_path, convolution, "both")
    graph, step = named_sources.load_runnable(where)
    scratch = workspaces(graph, resolve_shapes(sources.capture_file(where.file, where.fetch), None))
    assert (scratch > 10**7).sum() == 2
    made, plan = planned(graph, on_second(graph, ()))
    traced = trace(step, plan, steps=2)
    stats = traced.steps[0]
    assert held(traced, stats, "cpu:0").peak == measure(graph, made.timeline, scratch=scratch).peak[0] > 10**7
    assert held(traced, stats, "cpu:0", scratch=False).peak == measure(graph, made.timeline).peak[0] < 10**5


def pooling() -> None:
    """The gradient of the largest of each 2 x 2 pixels of 4 images of 8 x 8 x 3, and of one convolution."""
    x = v1.placeholder(tf.float32, [4, 8, 8, 3], name="x")
    y = tf.nn.max_pool2d(tf.nn.conv2d(tf.tanh(x), tf.ones([1, 1, 3, 3]), 2, "SAME"), 2, 2, "SAME")
    tf.group(*tf.gradients(tf.reduce_sum(y * y), [x]), name="both")


def test_each_kernels_scratch_is_predicted(tmp_path: Path) -> None:
    """What the trace calls temporary: for MaxPoolGrad, 8 bytes for each of 4 x 2 x 2 x 3 maxima."""
    where = source(tmp_path, pooling, "both")
    graph, step = named_sources.load_runnable(where)
    scratch = workspaces(graph, resolve_shapes(sources.capture_file(where.file, where.fetch), None))
    _, plan = planned(graph, on_second(graph, ()))
    stats = trace(step, plan, steps=1).steps[0]
    temporary = {e.node_name: e.memory_stats.temp_memory_size for d in stats.dev_stats for e in d.node_stats}
    assert [temporary.get(name, 0) for name in graph.names] == scratch.tolist()
    assert 8 * 4 * 2 * 2 * 3 in scratch.tolist() and scratch.max() > 10**6


@pytest.mark.slow
def test_a_tiny_models_peaks_are_predicted() -> None:
    """Round robin over two devices: within 15 % with the order pinned, within 2 % at the run's own times."""
    graph, step = named_sources.load_runnable(Source(model="rnnlm", variant="tiny"))
    made, plan = planned(graph, lambda problem: place_in_turn(problem, Options(seconds=10)).device)

    def right(traced: TracedSteps, stats: Any) -> bool:
        allocated = [held(traced, stats, device).peak for device in ("cpu:0", "cpu:1")]
        real = measure(graph, retimed(traced, stats, graph, made.timeline)).peak.tolist()
        predicted = [plan.peak_bytes[device] for device in ("cpu:0", "cpu:1")]
        return predicted == pytest.approx(allocated, rel=0.15) and real == pytest.approx(allocated, rel=0.02)

    assert some_step(step, plan, right, pinned=True)


def two_chains() -> None:
    """Two chains of ten ops that have nothing to do with each other, but in the end."""
    ends = []
    for name in ("a", "b"):
        x = v1.placeholder(tf.float32, [16, 16], name=f"{name}_x")
        for k in range(10):
            x = tf.tanh(x, name=f"{name}_{k}")
        ends.append(x)
    tf.add(*ends, name="end")


def test_pinned_devices_wait_for_what_the_plan_has_ended(tmp_path: Path) -> None:
    """Of two ops on two devices of which the plan ends one before it starts the other, an edge or a path says so."""
    where = source(tmp_path, two_chains, "end")
    graph, step = named_sources.load_runnable(where)
    made, plan = planned(graph, on_second(graph, tuple(name for name in graph.names if name.startswith("b"))))
    done = rewrite_with_report(step.graph.as_graph_def(add_shapes=True), plan, EnforceOptions(devices="cpu"))
    assert not done.renamed
    ordered = {name for name in graph.names if not name.endswith("_x")}
    pin(done.graph_def, plan, ordered)
    earlier = {node.name: {text.strip("^").partition(":")[0] for text in node.input} for node in done.graph_def.node}
    behind: dict[str, set[str]] = {}
    for name in np.array(plan.names)[np.argsort(plan.rank)].tolist():  # ranks follow every edge: there is no cycle
        behind[name] = set(earlier[name]).union(*(behind[before] for before in earlier[name]))
    s = made.timeline.schedule
    pairs = [
        (x, y)
        for i, x in enumerate(graph.names)
        for j, y in enumerate(graph.names)
        if {x, y} <= ordered and s.device[i] != s.device[j] and s.finish[i] <= s.start[j]
    ]
    assert len(pairs) > 50 and all(x in behind[y] for x, y in pairs)


SHAPE = (8, 8)
ALLOCATE = ("Cast", "Cumsum", "Equal", "L2Loss", "MatMul", "Transpose")
"""Some op types that do not work in place."""
FIXED = {
    "Cast": lambda x: {"x": x, "DstT": tf.int32},
    "ClipByValue": lambda x: {"t": x, "clip_value_min": tf.constant(0.1), "clip_value_max": tf.constant(0.2)},
    "Cumsum": lambda x: {"x": x, "axis": 0},
    "SparseSoftmaxCrossEntropyWithLogits": lambda x: {"features": x, "labels": tf.zeros([SHAPE[0]], tf.int32)},
    "Select": lambda x: {"condition": tf.constant([True] * SHAPE[0]), "x": x, "y": x + 1.0},
    "SelectV2": lambda x: {"condition": tf.constant([True] * SHAPE[1]), "t": x, "e": tf.zeros([])},
    "Transpose": lambda x: {"x": x, "perm": [1, 0]},
}


def fresh(dtype: Any) -> Any:
    """A tensor whose buffer nobody else reads."""
    made = tf.random.uniform(SHAPE) + 0.5
    return made if dtype == tf.float32 else tf.less(made, 1.0) if dtype == tf.bool else tf.cast(made, dtype)


def applied(name: str) -> Any:
    """An op of the type, in the default graph, on inputs of its own, of the first data type that it takes."""
    for dtype in (tf.float32, tf.int32, tf.bool, tf.complex64):
        arguments = {}
        for argument in op_def(name).input_arg:
            value = tf.zeros([SHAPE[1]], dtype) if argument.name == "bias" else fresh(dtype)
            arguments[argument.name] = [value, fresh(dtype)] if argument.number_attr else value
        try:
            made = getattr(tf.raw_ops, name)(**(FIXED[name](fresh(dtype)) if name in FIXED else arguments))
        except (TypeError, ValueError):  # not of this type
            continue
        return (made[0] if isinstance(made, tuple) else made).op
    raise AssertionError(f"no inputs for {name}")


def allocating(operations: dict[str, Any]) -> Iterator[str]:
    """Those of the op types whose op allocated as much as its largest output."""
    metadata, options = v1.RunMetadata(), v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    config = disable_optimizers(v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1))
    with v1.Session(graph=next(iter(operations.values())).graph, config=config) as session:
        session.run(list(operations.values()), options=options, run_metadata=metadata)
    entries = {e.node_name: e for device in metadata.step_stats.dev_stats for e in device.node_stats}
    for name, operation in operations.items():
        entry = entries[operation.name]
        largest = max(o.tensor_description.allocation_description.requested_bytes for o in entry.output)
        if largest in [r.alloc_bytes for m in entry.memory for r in m.allocation_records]:
            yield name


def test_the_kernels_of_this_tensorflow_work_in_place() -> None:
    """Each type in the table writes into an input that nobody else holds, and some others allocate."""
    with tf.Graph().as_default():
        operations = {name: applied(name) for name in (*sorted(IN_PLACE), *ALLOCATE)}
    assert sorted(allocating(operations)) == sorted(ALLOCATE)
