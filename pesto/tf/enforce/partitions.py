"""The check of every use: have TensorFlow's partition graphs each op where the plan says, in the plan's order?"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.errors import VerificationError
from pesto.tf.enforce.loop_nodes import Loop
from pesto.tf.enforce.order import unordered
from pesto.tf.enforce.placement import CARRIED, FED, Placement
from pesto.tf.enforce.targets import covers

_COPY = "/replicate/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a run did with a plan."""

    ops: int
    """Ops of the plan that the run has."""
    moves: tuple[str, ...]
    """One line for each op that is not on its device."""
    inversions: tuple[str, ...]
    """One line for each pair of neighbours in a chain that may run the other way round."""
    absent: tuple[str, ...] = ()
    """Ops that should run and do not."""

    def checked(self) -> "Findings":
        """Itself; VerificationError when anything is not as planned."""
        wrong = [*self.moves, *self.inversions, *(f"op {name} does not run" for name in self.absent)]
        if wrong:
            more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
            raise VerificationError(
                f"TensorFlow does not run the step as planned: {len(self.moves)} ops moved, {len(self.inversions)} "
                f"pairs out of order, {len(self.absent)} missing: {'; '.join(wrong[:3])}{more} - report it with "
                "pesto doctor"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """What partition graphs are held against: nodes by name, the ops that run."""

    placement: Placement
    loops: Mapping[str, Loop]
    ran: Collection[str] | None = None
    """Names of the ops that the run needs; None for all."""


def examine(partitions: Sequence[Any], expected: Expected, prefix: str = "") -> Findings:
    """Compare the partition GraphDefs of one run with what is expected; `prefix` stands before each node's name."""
    where = {}
    for part in partitions:
        for node in part.node:
            if node.name.startswith(prefix):
                where[node.name[len(prefix) :]] = node.device
    # TensorFlow gives a small constant that is read elsewhere to each device that reads it.
    copied = {name.partition(_COPY)[0] for name in where if _COPY in name}
    placement, graph = expected.placement, expected.placement.graph
    runs = [
        i
        for i, name in enumerate(graph.names)
        if graph.types[graph.type_of[i]] not in FED | CARRIED and (expected.ran is None or name in expected.ran)
    ]
    moves, absent, here = [], [], []
    for i in runs:
        for name in _nodes(graph.names[i], expected.loops):
            if name not in where:
                absent += [] if name in copied else [name]
            elif not _same(placement.device_of(i), where[name]):
                moves.append(f"op {name} is on {where[name]}, planned on {placement.device_of(i)}")
            else:
                here.append(i)
    late = unordered(partitions, expected.placement, expected.loops, np.array(here, dtype=np.int64), prefix)
    return Findings(ops=len(runs), moves=tuple(moves), inversions=tuple(late), absent=tuple(absent))


def prefixes(partitions: Iterable[Any], placement: Placement) -> list[str]:
    """What stands before the names of the placement's ops where functions that call the step were inlined."""
    graph = placement.graph
    marks = [n for i, n in enumerate(graph.names) if graph.types[graph.type_of[i]] not in (*FED, "VarHandleOp", "NoOp")]
    if not marks:
        return []
    mark = max(marks, key=len)
    names = [node.name for part in partitions for node in part.node]
    return sorted({n[: -len(mark)] for n in names if n == mark or n.endswith(f"/{mark}")})


def _nodes(name: str, loops: Mapping[str, Loop]) -> tuple[str, ...]:
    return loops[name].nodes if name in loops else (name,)


_seen: dict[tuple[str, str], bool] = {}


def _same(target: str, device: str) -> bool:
    key = (target, device)
    if key not in _seen:
        _seen[key] = covers(target, tf.DeviceSpec.from_string(device))
    return _seen[key]
