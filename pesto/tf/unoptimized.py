"""Sessions that run a graph as it stands."""

from typing import Any

import tensorflow as tf


def unoptimized(config: Any) -> Any:
    """The ConfigProto `config`, changed in place: Grappler and the other optimisations of graphs off."""
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return config
