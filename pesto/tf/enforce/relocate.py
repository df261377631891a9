"""Variables of TF2 live where they were created; a plan wants them elsewhere."""

import gc
import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, MismatchError
from pesto.core.files.json import shown
from pesto.tf import private
from pesto.tf.apply_placement.placement import StepPlacement
from pesto.tf.apply_placement.targets import covers
from pesto.tf.variables.handles import HandleHolders, captured_by_dataset, find_holders

_log = logging.getLogger("pesto")


@dataclass(frozen=True, slots=True, eq=False)
class _DeviceClaim:
    """A resource that a placed step has on a device."""

    handle: Any
    """Kept, so that its id stays its own."""
    target: str
    source: str
    """The step, for messages."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class VariableMoves:
    """Variables that were moved, and where they came from."""

    origin: list[tuple[Any, str]] = field(default_factory=list)
    """(variable, its first device)."""
    claims: dict[int, _DeviceClaim] = field(default_factory=dict)
    """Handle's id -> the claim of a placed step, for moved and unmoved variables, until `undo`."""

    def settle(self, graph: Any, placement: StepPlacement, source: str) -> None:
        """Move what the FuncGraph captures to where the placement has it, slots and counters included.

        source: what the plan is of, for messages.

        A moved variable keeps its identity, value and name; checkpoints do not change. InputError for a table or other
        resource that is elsewhere and cannot be moved, or that a tf.data pipeline reads; MismatchError for a variable
        that another placed step has elsewhere. Nothing has moved then.
        """
        wanted = list(_resources(graph, placement))
        # Two live steps may share a variable. Both must agree on its device: moving it for one would invalidate the
        # compiled graph of the other.
        _LIVE.add(self)
        _refuse_contested(wanted, source)
        away = [(o, name, to) for o, name, to in wanted if not covers(to, tf.DeviceSpec.from_string(o.device))]
        now = {id(outer): outer for outer, _, _ in wanted}
        if away:
            # Finding every holder of a handle means walking all objects of the process, so it is done once for all
            # variables that move.
            live = _outside_data([outer for outer, _, _ in away])
            variables = live.by_handle()
            moved = [(_variable(variables, *one), one[2]) for one in away]
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
        held = captured_by_dataset(live.functions, [variable.handle for variable, _ in first.values()])
        if held is not None:
            _log.warning(
                "%s of a tf.data pipeline was made inside pesto.apply and keeps reading the variable %s of then, which "
                "is back where it was - make the pipeline anew", private.name_of(held[0]), _named(live, held[1])
            )  # fmt: skip
        _move(live, list(first.values()))


_LIVE: "weakref.WeakSet[VariableMoves]" = weakref.WeakSet()
"""All moves of this process: a step of `pesto.place` keeps its variables in place for as long as it exists."""


def _resources(graph: Any, placement: StepPlacement) -> Iterator[tuple[Any, str, str]]:
    """(captured handle, its name in the graph, planned device) of each resource that the placement knows."""
    index = {name: i for i, name in enumerate(placement.graph.names)}
    for outer, inner in graph.captures:
        i = index.get(inner.op.name)
        if i is not None and outer.dtype == tf.resource:
            yield outer, inner.op.name, placement.device_of(i)


def _refuse_contested(wanted: Sequence[tuple[Any, str, str]], source: str) -> None:
    """MismatchError when a live step has one of the resources on another device."""
    if _contested(wanted) is None:
        return
    gc.collect()  # the other step may be gone but for cycles
    contested = _contested(wanted)
    if contested is not None:
        claim, name, target = contested
        raise MismatchError.build(
            f"variable {_named(find_holders(), claim.handle)} ({shown(name)}) is planned on {target} by the "
            "plan of "
            f"{shown(source)}, and on {claim.target} by that of {shown(claim.source)}, which is in use",
            remedy=(
                "plan this "
                "step beside that plan, pesto.solve(graph, beside=plan); or both steps as one: a "
                "Keras model whose "
                "train_step does both, as of a GAN, or one tf.function that calls both as plain "
                "Python functions; or use "
                "the plans one after the other: close the first pesto.apply, drop the "
                "first pesto.place"
            ),
        )


def _contested(wanted: Sequence[tuple[Any, str, str]]) -> tuple[_DeviceClaim, str, str] | None:
    live = list(_LIVE)
    for outer, name, target in wanted:
        for moves in live:
            claim = moves.claims.get(id(outer))
            if claim is not None and claim.target != target:
                return claim, name, target
    return None


def _outside_data(handles: Sequence[Any]) -> HandleHolders:
    """Return the live holders; InputError when a tf.data pipeline holds one of the handles."""
    live = find_holders()
    if captured_by_dataset(live.functions, handles) is not None:
        del live
        gc.collect()  # the pipeline may be gone but for cycles
        live = find_holders()
    held = captured_by_dataset(live.functions, handles)
    if held is not None:
        raise InputError.build(
            f"{shown(private.name_of(held[0]))} of a tf.data pipeline reads the variable "
            f"{_named(live, held[1])}, "
            "which the plan moves: the pipeline would go on reading the old one",
            remedy="make the pipeline after the first step, or hand it the variable's value (v.numpy())",
        )
    return live


def _variable(variables: Mapping[int, Any], outer: Any, name: str, target: str) -> Any:
    variable = variables.get(id(outer))
    if variable is None:
        raise InputError(
            f"{shown(name)} is a table or iterator on {outer.device}, planned on {target}: only variables can be moved "
            f"- create it under tf.device({target!r})"
        )
    return variable


def _named(live: HandleHolders, handle: Any) -> str:
    return shown(getattr(live.by_handle().get(id(handle)), "name", "?"))


def _move(live: HandleHolders, wanted: Sequence[tuple[Any, str]]) -> None:
    """Put each variable on a device; all at once, as finding all that holds a handle takes a while."""
    moved = []
    for variable, device in wanted:
        # Not tf.Variable: a tf.function that is on its first call around this one would take it for its own.
        with tf.init_scope(), tf.device(device):
            value = private.new_variable(variable)
        moved.append((variable, value))
    live.move(moved)
