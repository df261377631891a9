"""Graphs that have files read, or hosts called, as soon as TensorFlow imports them are no jobs."""

import re

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

from pesto.core.errors import InputError
from pesto.core.files.disk import confine_to
from pesto.tf.sources.sources import EXTERNAL, read_graph_def

TELLS = re.compile(r"file(name)?s?$|^path$|^debug_(urls|ops_spec)$|memory_region|shard_dir|^address$")


def test_each_op_without_a_state_that_names_files_or_hosts_is_known():
    """Of the TensorFlow that is installed; MatchingFiles alone calls a path something else."""
    ops = op_def_pb2.OpList()
    ops.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    stateless = {op.name: {arg.name for arg in (*op.input_arg, *op.attr)} for op in ops.op if not op.is_stateful}
    named = {name for name, args in stateless.items() if any(map(TELLS.search, args))}
    assert named | {"MatchingFiles"} == EXTERNAL


@pytest.mark.parametrize("within", ["graph", "function"])
def test_a_graph_that_reads_a_file_is_no_job(tmp_path, within):
    """TensorFlow tells a file's content by the shape of what is made of it."""
    (tmp_path / "secret").write_bytes(b"\3\0\0\0\4\0\0\0")

    def read(x):
        data = tf.io.decode_raw(tf.io.read_file(str(tmp_path / "secret")), tf.int32)
        return tf.reshape(x, data)

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [12], name="x")
        y = read(x) if within == "graph" else tf.function(read)(x)
    assert within == "function" or y.shape == (3, 4)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "step.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with confine_to(tmp_path / "jobs"), pytest.raises(InputError, match="the op ReadFile reads files"):
        read_graph_def(tmp_path / "jobs" / "step.pb")
    assert read_graph_def(tmp_path / "jobs" / "step.pb").node
