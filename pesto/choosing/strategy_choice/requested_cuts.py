"""The cuts of a step that a user asks for in words."""

from math import prod

from pesto.choosing.strategy_choice.one_board import accelerators_of
from pesto.choosing.strategy_choice.timed_split import factorings
from pesto.core.cluster import Cluster
from pesto.core.errors import UsageError
from pesto.split.geometry import Shape
from pesto.split.split_search import parse_factors

RUNS_ALONE = "a split cuts them into parts and runs as a program of its own, beside no plan"
"""Why no split is made beside the plan of another step."""
AUTO = "auto"
"""All cuts for all accelerators."""


def named_cuts(words: str) -> tuple[Shape, ...]:
    """The cuts of words such as 2x2,4, each once; none of `AUTO`; UsageError for what is no cut."""
    if words == AUTO:
        return ()
    return tuple(dict.fromkeys(parse_factors(word.strip()) for word in words.split(",")))


def cuts_of(words: str, cluster: Cluster) -> tuple[Shape, ...]:
    """The cuts for a cluster; UsageError for what is no cut, or needs more accelerators than there are."""
    many = len(accelerators_of(cluster))
    found = named_cuts(words) or factorings(many)
    for factors in found:
        if prod(factors) > many:
            cut = "x".join(map(str, factors))
            raise UsageError.build(
                f"the cut {cut} is for {prod(factors)} workers, {cluster.name} has {many} accelerators",
                remedy="give fewer, or another cluster",
            )
    return found
