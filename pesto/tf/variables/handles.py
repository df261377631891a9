"""Holders of a variable's handle in this process, so that all of them follow when the variable moves."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pesto.tf import private

Swaps = Mapping[int, tuple[Any, Any]]
"""Old handle's id -> (old handle, kept alive so that its id stays unique, new handle)."""


@dataclass(frozen=True, slots=True)
class HandleHolders:
    """Live Python objects that may hold handles."""

    variables: tuple[Any, ...]
    functions: tuple[Any, ...]
    """ConcreteFunctions, including those of loaded SavedModels and wrapped v1 functions."""
    graphs: tuple[Any, ...]
    """FuncGraphs, including those that are being traced."""
    tapes: tuple[Any, ...]

    def by_handle(self) -> dict[int, Any]:
        """Return the variable with each handle, by the handle's id."""
        # Assignments return objects with the same handle. Sorted last, the original variable wins in the dictionary.
        last = sorted(self.variables, key=private.is_assignment_result, reverse=True)
        return {id(private.handle_of(v)): v for v in last}

    def move(self, moved: Sequence[tuple[Any, Any]]) -> None:
        """Give the first variable of each pair in `moved` the handle of the second, which has its value elsewhere.

        Functions, graphs and open tapes that hold the old handles get the new ones.
        """
        swaps = {id(v.handle): (v.handle, value.handle) for v, value in moved}
        # The variable object stays, so identity, name, optimizer slots and checkpoints are unaffected; only its handle
        # is exchanged, wherever it was captured.
        for variable in self.variables:
            if (swap := swaps.get(id(private.handle_of(variable)))) is not None:
                private.set_handle(variable, swap[1])
        for function in self.functions:
            captured = private.get_captured_inputs(function)
            if any(id(c) in swaps for c in captured):
                function.set_external_captures([_swap(c, swaps) for c in captured])
        for graph in self.graphs:
            replace_captures(graph, swaps)
        # Open gradient tapes, which watched the old handles, follow the new ones.
        new = {id(handle): (old, handle) for old, handle in swaps.values()}
        linked: dict[int, tuple[Any, Any]] = {}
        for tape in self.tapes:
            for variable in tape.watched_variables() if private.is_recording(tape) else ():
                if (pair := new.get(id(variable.handle))) is not None:
                    tape.watch(variable.handle)
                    linked[id(variable.handle)] = pair
        for old, handle in linked.values():
            private.record_identity(old, handle)


def find_holders() -> HandleHolders:
    """Return all holders in this process, in one slow pass over its objects."""
    kinds = (*private.get_holder_classes(), tf.GradientTape)
    by_kind: tuple[list[Any], ...] = tuple([] for _ in kinds)
    # By id: isinstance would ask lazy modules and dead proxies for their class, and some classes have no hash.
    place = {id(kind): by_kind[k] for k, base in enumerate(kinds) for kind in _find_family(base)}
    # TensorFlow keeps no registry of functions and graphs that captured a handle; the garbage collector's list is the
    # only complete one.
    for thing in gc.get_objects():
        if (same := place.get(id(type(thing)))) is not None:
            same.append(thing)
    variables, functions, graphs, tapes = (tuple(same) for same in by_kind)
    return HandleHolders(variables=variables, functions=functions, graphs=graphs, tapes=tapes)


def find_dataset_capture(functions: Sequence[Any], handles: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return a function of a tf.data pipeline and one of `handles` that it captured; None when there is none.

    The pipeline itself keeps the handle too, out of reach of Python.
    """
    handle_by_id = {id(h): h for h in handles}
    for function in functions:
        captured = [handle_by_id[id(c)] for c in private.get_captured_inputs(function) if id(c) in handle_by_id]
        if captured and private.runs_in_data(function):
            return function, captured[0]
    return None


def replace_captures(graph: Any, swaps: Swaps) -> None:
    """Replace old handles among the captures of a FuncGraph, traced or being traced, by new ones."""
    if any(id(outer) in swaps for outer, _ in graph.captures):
        pairs = [(_swap(outer, swaps), inner) for outer, inner in graph.captures]
        graph.function_captures.reset_captures(*zip(*pairs, strict=True))
        list(graph.captures)  # reading it drops the cached list, and the old handles with it


def _swap(handle: Any, swaps: Swaps) -> Any:
    return swaps[id(handle)][1] if id(handle) in swaps else handle


def _find_family(base: type) -> Iterator[type]:
    yield base
    below: list[type] = type.__subclasses__(base)
    for kind in below:
        yield from _find_family(kind)
