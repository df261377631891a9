"""How many ops a fixed batch would spare: those that read what the open batch alone leaves open."""

import pytest
import tensorflow as tf

from pesto.tf.nodes.shape_inference import count_size_reads


@pytest.mark.parametrize(
    ("shape", "count"), [((None, 4), 1), ((8, 4), 0), ((None, None), 0), ((8, None), 0)],
    ids=["open", "fixed", "open for other reasons too", "another one is open"],
)  # fmt: skip
def test_only_the_open_batch_counts(shape, count):
    """A size that is open anyway is read at run time whatever the batch is."""
    with tf.Graph().as_default() as graph:
        fed = tf.compat.v1.placeholder(tf.float32, shape)
        tf.raw_ops.Shape(input=fed)
    assert count_size_reads(graph.as_graph_def(add_shapes=True)) == count
