"""A step is read again to be divided, emulated or run; what its sizes assume is warned of once."""

import logging
from pathlib import Path

import pytest

from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.core.source import Source  # noqa: E402
from pesto.inputs.load import load_both, load_graph  # noqa: E402
from pesto.tf.apply_placement.placement import trace_step  # noqa: E402
from pesto.tf.sources.sources import capture_saved_model  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A SavedModel that updates nothing, with a loop that reads a variable and has no known number of trips."""
    module = tf.Module()
    module.weight = tf.Variable(tf.ones([8, 4]))

    @tf.function(input_signature=[tf.TensorSpec([2, 8], tf.float32)])
    def serve(x):
        return tf.while_loop(
            lambda total: total < 100.0, lambda total: (total + tf.reduce_sum(x @ module.weight),), [tf.reduce_sum(x)]
        )

    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": serve})
    return tmp_path


def test_a_saved_model_is_warned_of_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Read to be cut, which its loop refuses, it gives the graph of a plain reading with the same two warnings."""
    plain = load_graph(Source(saved_model=folder))
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 2 and "updates no variable" in warned[1]
    caplog.clear()
    graph, why = load_both(Source(saved_model=folder))
    assert isinstance(why, str) and "runs once and reads a variable itself" in why
    assert graph.fingerprint() == plain.fingerprint()
    assert [record.getMessage() for record in caplog.records] == warned


def test_a_planned_step_is_traced_without_its_warnings(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are given when it is planned; the project's log is as before afterwards."""
    captured = capture_saved_model(folder)
    caplog.clear()
    trace_step(captured, None)
    assert not caplog.records
    logging.getLogger("pesto").warning("of something else")
    assert [record.getMessage() for record in caplog.records] == ["of something else"]
