"""The methods by name: a row each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from pesto.split.geometry import Shape
from pesto.split.methods.coarse_graph import CoarseGraphOptions
from pesto.split.methods.cut import CutChoice, CutTask, by_solver
from pesto.split.methods.joint import joint
from pesto.split.methods.memory_limited_cut import cut_within_memory
from pesto.split.methods.parallelism_rules import data_parallel, megatron
from pesto.split.methods.row_rules import rows, rows_random, spartan
from pesto.split.methods.tofu import tofu
from pesto.split.program import Rules


@dataclass(frozen=True, slots=True)
class CutMethod:
    """How cuts are chosen."""

    what: str
    """For people, after its name."""
    choose: Callable[[CutTask], CutChoice]
    together: bool = False
    """True if it makes all cuts at once."""
    flat: bool = False
    """True if it makes one cut for all workers, whatever factors are asked for."""
    replicates: bool = False
    """True if variables, and ops, may be whole by its own rule."""
    limited: bool = False
    """True if it keeps to a limit of what a worker holds."""
    priced: bool = False
    """True if it weighs messages and ops beside bytes, where the rules have prices."""

    def cuts(self, factors: Shape) -> list[Shape]:
        """The factors of each of its problems."""
        if self.flat:
            return [(prod(factors),)]
        return [factors] if self.together else [(k,) for k in factors]

    def ruled(self, rules: Rules) -> Rules:
        """Return the rules that divisions of this method keep."""
        return replace(rules, replicate=True, redundant=True) if self.replicates else rules


def _without(what: str, settings: CoarseGraphOptions, name: str) -> CutMethod:
    return CutMethod(f"Tofu, {what}", partial(tofu, settings=settings, name=name))


def _exact(cut: CutTask) -> CutChoice:
    memory_bytes = cut.rules.memory_bytes
    return by_solver(cut, "exact") if memory_bytes is None else cut_within_memory(cut, memory_bytes)


METHODS = {
    "exact": CutMethod("each cut proven to send least", _exact, limited=True, priced=True),
    "joint": CutMethod("all cuts at once, after the exact ones", joint, together=True, priced=True),
    "greedy": CutMethod("op by op in the order of the step", partial(by_solver, method="greedy"), priced=True),
    "tofu": CutMethod("Tofu's own: critical paths of the coarse graph by dynamic programming", tofu),
    "tofu-ungrouped": _without(
        "backward ops apart from forward ones", CoarseGraphOptions(grouping=False), "tofu-ungrouped"
    ),
    "tofu-uncoalesced": _without("element-wise ops apart", CoarseGraphOptions(coalescing=False), "tofu-uncoalesced"),
    "tofu-unmerged": _without("time steps apart", CoarseGraphOptions(steps=False), "tofu-unmerged"),
    "tofu-in-order": CutMethod(
        "Tofu, group by group in the order of the step", partial(tofu, paths=False, name="tofu-in-order")
    ),
    "chop": CutMethod("Tofu with one cut for all workers (EqualChop)", partial(tofu, name="chop"), flat=True),
    "rows": CutMethod("tensors along their first dimension, ops as sends least beside that", rows),
    "rows-random": CutMethod("tensors along their first dimension, ops by lot", rows_random),
    "spartan": CutMethod("the largest tensor first, with its ops", spartan),
    "data-parallel": CutMethod("every op along its batch, variables whole", data_parallel, replicates=True),
    "megatron": CutMethod("weights of pairs of matmuls by columns, then by rows", megatron, replicates=True),
}
"""Name -> method."""
