"""Reports of one op of a split: a JSON object, or a page for people."""

from collections.abc import Iterable
from typing import Any

from pesto.core.quantities import size
from pesto.reporting.show.lines import fact, paragraph
from pesto.split.geometry import Shape
from pesto.split.layouts import Rims, Strategy
from pesto.split.op_explanation import ExplainedOp, OpTensor
from pesto.split.op_strategy import ONCE_WAY, WHOLE_WAY
from pesto.split.pieces import Box
from pesto.split.variable_rows import layout_words

_WORKERS = 8
"""Workers whose parts are told on the page."""


def op_object(op: ExplainedOp) -> dict[str, Any]:
    """The key `op` of `pesto split --explain --json`. Layouts: a dimension, -1 whole, -2 partial, -3 worker 0 alone."""
    return {
        "name": op.name,
        "type": op.type,
        "class": op.kind or None,
        "way": list(op.way.names),
        "reducer": op.way.reducer or None,
        "strategies": [
            {
                "parts": k,
                "found": [_found(s) for s in result.found],
                "refused": [{"variable": each.variable, "reason": each.reason} for each in result.refused],
            }
            for k, result in op.strategies
        ],
        "inputs": [_carried(each, "kept", "needed") for each in op.inputs],
        "outputs": [_carried(each, "computed", "kept") for each in op.outputs],
    }


def _found(strategy: Strategy) -> dict[str, Any]:
    """Windows of each input, where there are some."""
    made = {"variable": strategy.name, "needs": list(strategy.needs), "gives": list(strategy.gives)}
    windows = [[rim._asdict() for rim in rims] for rims in strategy.rims]
    return {**made, "windows": windows} if windows else made


def _carried(each: OpTensor, result: str, wanted: str) -> dict[str, Any]:
    return {
        "tensor": each.tensor,
        "shape": None if each.shape is None else list(each.shape),
        "dtype": each.dtype,
        result: list(each.found),
        wanted: list(each.wanted),
        "bytes": each.moved_bytes,
        "parts": [None if box is None else [[a, a + n] for a, n in zip(*box, strict=True)] for box in each.parts],
    } | ({"windows": [rim._asdict() for rim in each.rims]} if each.rims else {})


def op_page(op: ExplainedOp, factors: Shape) -> str:
    """One op: strategies and refusals, the way of each cut, its tensors, and who has which part."""
    lines = [paragraph(f"{op.name}: {op.type}, {op.kind or 'without a description'}", 2), ""]
    for k, result in op.strategies:
        can = [f"{s.name}: {_strategy(s)}" for s in result.found]
        lines += [fact(f"in {k}", each) for each in can or ["no index variable can be cut"]]
        lines += [fact("", f"not {_variable(each.variable)}: {each.reason}") for each in result.refused]
    lines.append("")
    for number, (name, k) in enumerate(zip(op.way.names, factors, strict=True), 1):
        lines.append(fact(f"cut {number}", _chosen(name, k, op.way.reducer if _partial(op, number - 1) else "")))
    for label, each in _tensors(op):
        lines += ["", *_tensor(label, each, factors)]
    return "\n".join(lines)


def _strategy(strategy: Strategy) -> str:
    rims = strategy.rims or ((),) * len(strategy.needs)
    read = ", ".join(_layout(layout) + _windows(own) for layout, own in zip(strategy.needs, rims, strict=True))
    made, reducer = ", ".join(map(_layout, strategy.gives)), strategy.reducer
    return f"inputs {read or 'none'}; outputs {made or 'none'}{f' ({reducer})' if reducer else ''}"


def _windows(rims: Rims) -> str:
    return "".join(f" in windows of {rim.size}, {rim.step} apart" for rim in rims)


def _layout(layout: int) -> str:
    return layout_words((layout,), (0,)).removesuffix(" in 0").removesuffix(" of 0")


def _variable(name: str) -> str:
    return "any" if name == "*" else name


def _partial(op: ExplainedOp, cut: int) -> bool:
    return any(each.found[cut] == -2 for each in op.outputs)


def _chosen(name: str, k: int, reducer: str) -> str:
    if name == ONCE_WAY:
        return "worker 0 alone does it, once"
    if name == WHOLE_WAY:
        return "whole: all workers of a group do the same"
    return f"along {name} in {k}" + (f"; each has a partial result, made one by {reducer}" if reducer else "")


def _tensors(op: ExplainedOp) -> Iterable[tuple[str, OpTensor]]:
    yield from ((f"input {at}", each) for at, each in enumerate(op.inputs))
    yield from ((f"output {at}", each) for at, each in enumerate(op.outputs))


def _tensor(label: str, each: OpTensor, factors: Shape) -> list[str]:
    words = ("kept", "needed") if label.startswith("input") else ("computed", "kept")
    shape = "no shape" if each.shape is None else "x".join(map(str, each.shape)) or "a number"
    lines = [
        fact(label, f"{each.tensor}, {shape} {each.dtype}"),
        fact("", f"{words[0]}: {layout_words(each.found, factors)}; {words[1]}: {_wanted(each, factors)}"),
        fact("", f"{size(each.moved_bytes)} brought" if each.moved_bytes else "nothing brought"),
    ]
    if each.shape:
        told = [f"{w} {_box(box)}" for w, box in enumerate(each.parts[:_WORKERS])]
        more = len(each.parts) - _WORKERS
        lines.append(fact("", "parts: " + ", ".join(told) + (f", and {more} more" if more > 0 else "")))
    return lines


def _wanted(each: OpTensor, factors: Shape) -> str:
    windows = ", ".join(f"windows of {rim.size} along dimension {rim.dimension}" for rim in each.rims)
    return layout_words(each.wanted, factors) + (f", {windows}" if windows else "")


def _box(box: Box | None) -> str:
    return "none" if box is None else "[" + ",".join(f"{a}:{a + n}" for a, n in zip(*box, strict=True)) + "]"
