"""Sessions that run a graph as it stands."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from pesto.tf import private

MERGED = (("Conv2D", "BiasAdd"), ("BiasAddGrad", "Conv2DBackpropFilter"), ("Pad", "Conv2D"))
"""Types that oneDNN makes one kernel of on a CPU, in the node of the second, where both wait for the same ops."""


def disable_optimizers(config: Any) -> Any:
    """Turn Grappler and the other optimisations of graphs off in the ConfigProto `config`, and return it."""
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return config


@contextmanager
def prevent_onednn_merging(graph: Any) -> Iterator[None]:
    """Keep oneDNN from merging ops of a live graph meanwhile: the second of each pair waits for what it reads."""
    seconds = {second for _, second in MERGED}
    with ExitStack() as stack:
        for op in graph.get_operations():
            if op.type in seconds:
                stack.callback(private.set_controls, op, list(op.control_inputs))
                private.add_controls(op, [tensor.op for tensor in op.inputs])
        yield
