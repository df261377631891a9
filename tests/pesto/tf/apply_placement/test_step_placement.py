"""A placement keeps its own arrays, which nobody changes later."""

from collections.abc import Callable

import numpy as np
import pytest

from pesto.core.graph import Graph
from pesto.tf.tensorflow_start import load_tensorflow

load_tensorflow()

from pesto.tf.apply_placement.placement import StepPlacement  # noqa: E402  # after the quiet load


@pytest.mark.parametrize("field", ["device", "lane", "rank", "chained", "before", "after", "planned"])
def test_arrays_are_copied_and_frozen(make_graph: Callable[..., Graph], field: str) -> None:
    """A caller that goes on with its arrays changes no placement, and nobody writes to the placement's own."""
    graph = make_graph([{"name": "a"}, {"name": "b", "inputs": ["a"]}])
    given = {
        name: np.zeros(graph.ops, np.int64) for name in ("device", "lane", "rank", "before", "after", "planned")
    } | {"chained": np.zeros(graph.ops, np.bool_)}
    placement = StepPlacement(graph=graph, devices=("/device:CPU:0",), **given)
    given[field][0] = 1
    assert not getattr(placement, field)[0]
    with pytest.raises(ValueError, match="read-only"):
        getattr(placement, field)[0] = 1
