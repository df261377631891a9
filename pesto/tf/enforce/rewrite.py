"""A plan written into a GraphDef, for another program to run."""

from typing import Any

from pesto.plan import Plan
from pesto.tf.enforce.options import Options


def rewrite(graph_def: Any, plan: Plan, options: Options) -> Any:
    """A copy of `graph_def` with the plan's devices and order in it."""
    raise NotImplementedError
