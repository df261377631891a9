"""Steps whose batches only their own program provides: refused before they run, in one line."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pesto as face
from pesto.core.errors import InputError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.core.source import Source  # noqa: E402
from pesto.inputs import load as inputs  # noqa: E402
from pesto.tf import named_sources  # noqa: E402
from pesto.tf.nodes.needed_nodes import parse_nodes  # noqa: E402
from pesto.tf.run import planned_run  # noqa: E402
from pesto.tf.run.run_options import RunOptions  # noqa: E402  # after the quiet load
from pesto.tf.run.runnable import BatchesEndedError, refuse_waiting  # noqa: E402


def queue(kind: Callable[..., Any]) -> Any:
    return kind().dequeue_many(4)


def produced() -> Any:
    """As input pipelines of v1 batch what they read."""
    one = v1.train.limit_epochs(tf.random.uniform([6]))
    return v1.train.batch([one], 4)


def initializable() -> Any:
    data = tf.data.Dataset.from_tensors(tf.ones([4, 6])).repeat()
    return v1.data.make_initializable_iterator(data).get_next()


def in_a_branch() -> Any:
    """The op that waits is in a function."""
    made = v1.FIFOQueue(8, [tf.float32], [[6]])
    return tf.cond(v1.placeholder(tf.bool, []), lambda: made.dequeue_many(4), lambda: tf.ones([4, 6]))


WAIT = {
    "first in, first out": lambda: queue(lambda: v1.FIFOQueue(8, [tf.float32], [[6]])),
    "shuffled": lambda: queue(lambda: v1.RandomShuffleQueue(8, 2, [tf.float32], [[6]])),
    "padded": lambda: tf.ensure_shape(queue(lambda: v1.PaddingFIFOQueue(8, [tf.float32], [[6]])), [4, 6]),
    "a pipeline": produced,
    "in a branch": in_a_branch,
}


def saved(tmp_path: Path, batch: Callable[[], Any]) -> Source:
    """A GraphDef of a step that trains on a batch."""
    with tf.Graph().as_default() as graph:
        v1.enable_control_flow_v2()
        w = v1.get_variable("w", [6, 3], use_resource=True)
        loss = tf.reduce_mean(tf.tanh(batch() @ w), name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    path = tmp_path / "step.pb"
    path.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    return Source(file=path, fetch=("train", "loss"))


@pytest.mark.parametrize("kind", WAIT)
def test_a_step_that_would_wait_for_ever_is_refused(kind: str, tmp_path: Path) -> None:
    """It is planned, but neither run nor profiled; one line names the op and what to do."""
    source = saved(tmp_path, WAIT[kind])
    plan = face.solve(inputs.load_graph(source), cluster="cpux2", time_limit_s=0, solver="list")
    for attempt in (
        lambda: inputs.run_plan(plan, source, RunOptions(steps=1, devices="cpu")),
        lambda: inputs.profile_source(source, 2),
    ):
        with pytest.raises(
            InputError, match=r"would wait for ever - read the batch from a tf\.compat\.v1\.placeholder"
        ):
            attempt()


def test_staging_areas_wait_too() -> None:
    """What they give has no shape in a file, so such steps are rarely planned."""
    with tf.Graph().as_default() as graph:
        tf.raw_ops.Unstage(dtypes=[tf.float32], shared_name="area", name="taken")
    with pytest.raises(InputError, match=r"taken \(Unstage\) waits"):
        refuse_waiting(parse_nodes(graph.as_graph_def(), ["taken"]), "step")


def test_an_iterator_that_is_not_started_is_refused() -> None:
    """TensorFlow would fail in the first step."""
    with tf.Graph().as_default() as graph:
        types, shapes = [tf.float32], [[6]]
        handle = tf.raw_ops.IteratorV2(shared_name="rows", container="", output_types=types, output_shapes=shapes)
        tf.raw_ops.IteratorGetNext(iterator=handle, output_types=types, output_shapes=shapes, name="taken")
    with pytest.raises(InputError, match="only its own program starts - give the batch to the step"):
        refuse_waiting(parse_nodes(graph.as_graph_def(), ["taken"]), "step")


def test_an_iterator_is_started_by_the_graphs_own_op(tmp_path: Path) -> None:
    _, step = named_sources.load_runnable(saved(tmp_path, initializable))
    assert "MakeIterator" in {op.type for op in step.graph.get_operations()}


def test_a_queue_that_the_step_fills_runs(tmp_path: Path) -> None:
    """Nothing else is needed for it."""

    def filled() -> Any:
        made = v1.FIFOQueue(8, [tf.float32], [[6]])
        with tf.control_dependencies([made.enqueue_many(tf.ones([4, 6]))]):
            return made.dequeue_many(4)

    graph, profile = inputs.profile_source(saved(tmp_path, filled), 2, keep_disturbed=True)
    assert len(profile.seconds) == graph.ops


def ending(batches: int | None) -> Any:
    """A dataset of so many batches, or without an end."""
    data = tf.data.Dataset.from_tensors(tf.ones([4, 6])).repeat(batches)
    return v1.data.make_initializable_iterator(data).get_next()


def test_a_dataset_that_ends_is_no_fault_of_the_step(tmp_path: Path) -> None:
    """The batches that a profile takes are counted; one that repeats has enough."""
    assert inputs.profile_source(saved(tmp_path, lambda: ending(None)), 2, keep_disturbed=True)
    for batches, fewer in ((3, ""), (6, ", or ask for at most 1 iterations")):
        with pytest.raises(InputError) as refused:
            inputs.profile_source(saved(tmp_path, lambda n=batches: ending(n)), 2, keep_disturbed=True)
        said = f"profile: file .*: its dataset or queue ended after {batches} steps, and this needs batches for at "
        said += rf"least 7, 5 to warm up and 2 timed - end the dataset in \.repeat\(\){fewer}$"
        assert re.search(said, str(refused.value))


def test_fewer_steps_are_offered_where_they_help(tmp_path: Path) -> None:
    """Three batches are too few for a run of any length, four are enough for one step after three that warm up."""
    for batches, fewer in ((3, ""), (4, ", or ask for at most 1 steps")):
        source = saved(tmp_path, lambda n=batches: ending(n))
        drive = planned_run.StepDriver.of(named_sources.load_runnable(source)[1], steps=2, threads=2, gpu=False)
        with pytest.raises(BatchesEndedError, match=rf"after {batches} steps, .* at least 5, 3 ") as ended:
            drive.run()
        assert ended.value.remedy == f"end the dataset in .repeat(){fewer}"
    plan = face.solve(inputs.load_graph(source), cluster="cpux2", time_limit_s=0, solver="list")
    with pytest.raises(InputError, match=r"run: file .*: its dataset or queue ended after 4 steps"):
        inputs.run_plan(plan, source, RunOptions(steps=2, devices="cpu"))


def test_a_divided_step_takes_a_batch_a_step() -> None:
    """It has no steps that warm up."""
    error = BatchesEndedError(2, 0, (3, "steps"))
    assert str(error).endswith("for at least 3")
    assert error.remedy == "end the dataset in .repeat(), or ask for at most 2 steps"
