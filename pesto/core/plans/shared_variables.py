"""Variables that two steps share: recognised by their names, and pinned to where one plan has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.core.graph import AGAIN, Graph, Variable
from pesto.core.quantities import plural

_NAMING = "from its program, or from a graph file in which each variable has a name"
OF_PINNED = ", of the step with "
"""Separates the name of a bound from what was pinned in the problem that it holds for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVariables:
    """The variables of a plan's step, with the op at which each is held."""

    variables: tuple[Variable, ...] = ()
    op: tuple[int, ...] = ()
    """[v] index of the first op that stands for each variable."""

    @classmethod
    def of(cls, graph: Graph) -> "StepVariables":
        """Return the variables that a graph names, as far as an op stands for them."""
        ops = np.flatnonzero(graph.variable_of >= 0)
        used, first = np.unique(graph.variable_of[ops], return_index=True)
        return cls(variables=tuple(graph.variables[v] for v in used.tolist()), op=tuple(ops[first].tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionPlan:
    """The plan of another step beside which a plan was made."""

    source: str
    """`Graph.source` of the other step."""
    fingerprint: str
    """`Graph.fingerprint()` of the other step."""
    variables: dict[str, str] = field(default_factory=dict)
    """Device of the cluster to which each shared variable is pinned, by its name."""

    @property
    def pinned(self) -> str:
        """The number of pinned variables, in words."""
        return f"{plural(len(self.variables), 'variable')} pinned"


def shared_pins(other: tuple[StepVariables, Mapping[str, str], str], graph: Graph, cluster: Cluster) -> dict[str, str]:
    """Return the device of each variable that `graph` shares with another step's plan, by its name.

    other: the plan's variables, the device of each by name, and the source of its graph. A variable is shared where
    its name is; its data type and shape must then be the same.

    UsageError where no variable is shared; InputError where names are missing or do not tell variables apart, types or
    shapes differ, the cluster lacks a device, or ops that must share a device would be pinned to two.
    """
    held, devices, source = other
    what, here = f"the plan of {shown(source)}", shown(graph.source)
    own = {variable.name: variable for variable in graph.variables}
    theirs = {variable.name: variable for variable in held.variables}
    if not theirs:
        raise InputError.build(
            f"{what} names no variables: an older version wrote it, or its graph names none",
            remedy=f"solve its step again, {_NAMING}",
        )
    if not own:
        raise InputError.build("the graph names no variables", where=here, remedy=f"read the step again, {_NAMING}")
    shared = [name for name in own if name in theirs]
    if not shared:
        raise UsageError.build(
            f"{what} shares no variable with {here}: it has {_list_names(theirs)}, this step {_list_names(own)}",
            remedy="plan this step alone; or, where both use the same variables, give these the same names in both "
            "programs",
        )
    for one, other_one in ((own[name], theirs[name]) for name in shared):
        shapes = one.shape, other_one.shape
        fit = None in shapes or len(one.shape or ()) == len(other_one.shape or ())
        fit &= not (one.dtype and other_one.dtype and one.dtype != other_one.dtype)
        sizes = zip(one.shape or (), other_one.shape or (), strict=False)
        if not fit or any(a != b and -1 not in (a, b) for a, b in sizes):
            raise InputError.build(
                f"variable {shown(one.name)} is {one.told} in {here} and {other_one.told} in {what}: two variables of "
                "one name",
                remedy="plan both steps of one program, or give variables that differ names of their own",
            )
    for names, others, where in ((own, theirs, here), (theirs, own, what)):
        for name in names:
            base, again, number = name.rpartition(AGAIN)
            if again and number.isdigit() and base in names and base in others:
                raise InputError.build(
                    f"{where} has several variables called {shown(base)}, and nothing tells which of them are shared",
                    remedy="give each a name of its own, as in tf.Variable(..., name=...)",
                )
    pins = {name: devices[name] for name in shared}
    _refuse_split_groups(pins, graph, cluster, (what, here, source))
    return pins


def _refuse_split_groups(pins: Mapping[str, str], graph: Graph, cluster: Cluster, words: tuple[str, str, str]) -> None:
    """InputError where ops that share a device have variables on two, or cannot run on the device of theirs."""
    what, here, source = words
    kinds = {device.name: device.kind for device in cluster.devices}
    gone = sorted(set(pins.values()) - kinds.keys())
    if gone:
        raise InputError.build(
            f"{what} has shared variables on {', '.join(map(shown, gone))}, the cluster has {', '.join(kinds)}",
            remedy="give the cluster of that plan",
        )
    remedy = (
        f"solve {here} first, and that of {shown(source)} beside its plan; where that is refused as well, plan both as "
        "one step, a function that calls both"
    )
    first: dict[int, tuple[str, str]] = {}
    index = {variable.name: v for v, variable in enumerate(graph.variables)}
    for name, device in pins.items():
        for op in np.flatnonzero(graph.variable_of == index[name]).tolist():
            group = int(graph.group[op])
            members = np.flatnonzero(graph.group == group) if group >= 0 else np.array([op])
            other, there = first.setdefault(group, (name, device)) if group >= 0 else (name, device)
            if there != device:
                raise InputError.build(
                    f"{what} has {shown(other)} on {there} and {shown(name)} on {device}, which must share a device "
                    f"in {here}",
                    remedy=remedy,
                )
            kind = kinds[device]
            if kind not in graph.kinds or not graph.runs_on[members, graph.kinds.index(kind)].all():
                raise InputError.build(
                    f"{what} has {shown(name)} on {device}, where not all ops that use it in {here} can run",
                    remedy=remedy,
                )


def _list_names(variables: Mapping[str, Variable]) -> str:
    names = list(map(shown, variables))
    return ", ".join([*names[:2], *([f"{len(names) - 2} more"] if len(names) > 2 else [])])
