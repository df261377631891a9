"""The places of a chain: nodes that wait for the place before, and nodes that are done when the place is."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pesto.tf.apply_placement.placement import StepPlacement
from pesto.tf.apply_placement.step_graph import Loop


@dataclass(frozen=True, slots=True)
class ChainPlace:
    """One place of a chain: an op, a loop or a relay."""

    name: str
    """Name of the op or relay."""
    entries: tuple[str, ...]
    """Nodes that wait for the place before."""
    exits: tuple[str, ...]
    """Nodes that the next place waits for."""

    @classmethod
    def of(cls, name: str, loops: Mapping[str, Loop]) -> "ChainPlace":
        """An op's own."""
        loop = loops.get(name)
        return cls(name, loop.entries, loop.exits) if loop else cls(name, (name,), (name,))


def places_of(placement: StepPlacement, loops: Mapping[str, Loop]) -> dict[int, tuple[ChainPlace, ...]]:
    """Return the chain places of each op: its own where it is chained, then those of its relays."""
    # A chain orders ops and relays alike. An unchained op may still hold a place through its relay, which is how its
    # transfer gets a turn.
    relays, names, chained = placement.relays_of(), placement.graph.names, placement.chained.tolist()
    return {
        op: (
            *((ChainPlace.of(names[op], loops),) if chained[op] else ()),
            *(ChainPlace(name, (name,), (name,)) for name in relays.get(op, ())),
        )
        for op in np.flatnonzero(placement.ordered).tolist()
    }
