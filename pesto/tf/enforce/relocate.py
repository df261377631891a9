"""Moves of TF2 variables from where they were created to where a plan has them, and back.

A move gives the variable a new handle, so everything in the process that holds the old one must follow.
"""

import gc
import logging
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, MismatchError
from pesto.core.files.json import shown
from pesto.tf import private
from pesto.tf.apply_placement.placement import StepPlacement
from pesto.tf.apply_placement.targets import covers
from pesto.tf.variables.handles import HandleHolders, find_dataset_capture, find_holders

_log = logging.getLogger("pesto")


@dataclass(frozen=True, slots=True, eq=False)
class _DeviceClaim:
    handle: Any
    """Kept alive, so that its id stays unique."""
    target: str
    source: str
    """Name of the step, for messages."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class VariableMoves:
    """Record of moved variables and of the devices that they came from."""

    origin: list[tuple[Any, str]] = field(default_factory=list)
    """(variable, device before the move) of each move, in order."""
    claims: dict[int, _DeviceClaim] = field(default_factory=dict)
    """Handle's id -> the claim of a placed step, for moved and unmoved variables, until `undo`."""

    def settle(self, graph: Any, placement: StepPlacement, source: str) -> None:
        """Move the variables, slots and counters that the FuncGraph captures to their devices in the placement.

        source: name of the plan's graph, for messages. A moved variable keeps its identity, value and name; checkpoints
        do not change. Raise InputError for a table or other resource that is elsewhere and cannot be moved, or that a
        tf.data pipeline reads; MismatchError for a variable that another placed step has elsewhere. Nothing has moved
        then.
        """
        index = {name: i for i, name in enumerate(placement.graph.names)}
        # (captured handle, its name in the graph, planned device) of each resource that the placement knows.
        wanted = [
            (outer, inner.op.name, placement.device_of(index[inner.op.name]))
            for outer, inner in graph.captures
            if inner.op.name in index and outer.dtype == tf.resource
        ]
        # Two live steps may share a variable. Both must agree on its device: moving it for one would invalidate the
        # compiled graph of the other.
        _LIVE.add(self)
        _refuse_contested(wanted, source)
        away = [(o, name, to) for o, name, to in wanted if not covers(to, tf.DeviceSpec.from_string(o.device))]
        now = {id(outer): outer for outer, _, _ in wanted}
        if away:
            # Finding every holder of a handle means walking all objects of the process, so it is done once for all
            # variables that move.
            handles = [outer for outer, _, _ in away]
            live = find_holders()
            if find_dataset_capture(live.functions, handles) is not None:
                del live
                gc.collect()  # the pipeline may be gone but for cycles
                live = find_holders()
            capture = find_dataset_capture(live.functions, handles)
            if capture is not None:
                raise InputError.build(
                    f"{shown(private.name_of(capture[0]))} of a tf.data pipeline reads the variable "
                    f"{_name_of(live, capture[1])}, which the plan moves: the pipeline would go on reading the old one",
                    remedy="make the pipeline after the first step, or hand it the variable's value (v.numpy())",
                )
            variables = live.by_handle()
            moved = []
            for outer, name, target in away:
                if id(outer) not in variables:
                    raise InputError.build(
                        f"{shown(name)} is a table or iterator on {outer.device}, planned on {target}: only variables "
                        "can be moved",
                        remedy=f"create it under tf.device({target!r})",
                    )
                moved.append((variables[id(outer)], target))
            # The first device of each variable is recorded before the move, so that a failure midway can still be
            # undone.
            self.origin.extend(
                (variable, outer.device) for (variable, _), (outer, _, _) in zip(moved, away, strict=True)
            )
            _move(live, moved)
            # A moved variable has a new handle. Claims must be kept on that one, since later traces capture it.
            now |= {id(o): v.handle for (v, _), (o, _, _) in zip(moved, away, strict=True)}
        for outer, _, target in wanted:
            handle = now[id(outer)]
            self.claims[id(handle)] = _DeviceClaim(handle=handle, target=target, source=source)

    def undo(self) -> None:
        """Move everything back."""
        self.claims.clear()
        first: dict[int, tuple[Any, str]] = {}
        for variable, device in self.origin:
            # A variable that moved several times goes back to the device it had before the first move.
            first.setdefault(id(variable), (variable, device))
        self.origin.clear()
        if not first:
            return
        live = find_holders()
        # A pipeline made inside the context captured the new handle in C++ where it cannot be replaced; undoing is
        # still right for everybody else, so this is a warning.
        capture = find_dataset_capture(live.functions, [variable.handle for variable, _ in first.values()])
        if capture is not None:
            _log.warning(
                "%s of a tf.data pipeline was made inside pesto.apply and keeps reading the variable %s of then, which "
                "is back where it was - make the pipeline anew", private.name_of(capture[0]), _name_of(live, capture[1])
            )  # fmt: skip
        _move(live, list(first.values()))


_LIVE: "weakref.WeakSet[VariableMoves]" = weakref.WeakSet()
"""All moves of this process: a step of `pesto.place` keeps its variables in place for as long as it exists."""


def _refuse_contested(wanted: Sequence[tuple[Any, str, str]], source: str) -> None:
    """MismatchError when a live step has one of the resources on another device."""
    if _find_contested(wanted) is None:
        return
    gc.collect()  # the other step may be gone but for cycles
    contested = _find_contested(wanted)
    if contested is not None:
        claim, name, target = contested
        raise MismatchError.build(
            f"variable {_name_of(find_holders(), claim.handle)} ({shown(name)}) is planned on {target} by the plan of "
            f"{shown(source)}, and on {claim.target} by that of {shown(claim.source)}, which is in use",
            remedy="plan this step beside that plan, pesto.solve(graph, beside=plan); or both steps as one: a Keras "
            "model whose train_step does both, as of a GAN, or one tf.function that calls both as plain Python "
            "functions; or use the plans one after the other: close the first pesto.apply, drop the first pesto.place",
        )


def _find_contested(wanted: Sequence[tuple[Any, str, str]]) -> tuple[_DeviceClaim, str, str] | None:
    live = list(_LIVE)
    for outer, name, target in wanted:
        for moves in live:
            claim = moves.claims.get(id(outer))
            if claim is not None and claim.target != target:
                return claim, name, target
    return None


def _name_of(live: HandleHolders, handle: Any) -> str:
    return shown(getattr(live.by_handle().get(id(handle)), "name", "?"))


def _move(live: HandleHolders, wanted: Sequence[tuple[Any, str]]) -> None:
    moved = []
    for variable, device in wanted:
        # Not tf.Variable: a tf.function that is on its first call around this one would take it for its own.
        with tf.init_scope(), tf.device(device):
            value = private.new_variable(variable)
        moved.append((variable, value))
    live.move(moved)
