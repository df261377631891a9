"""The difference of two plans in sentences with numbers, and as one JSON object."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pesto.core.files.json import shown
from pesto.core.quantities import change, duration, percent, plural, shorten, size
from pesto.reporting.explaining.plan_diff import MovedOps, PlanDiff

_ROWS = 12
"""Groups of moved ops that a page has."""


def diff_sentences(d: PlanDiff) -> Iterator[tuple[str, str]]:
    """(word, sentence) of everything, in the order in which a page has it."""
    if not d.differ:
        yield "same", f"{d.both} ops, placed and in order alike; {duration(d.step_s[0])} predicted"
    yield "step", f"{_pair(*map(duration, d.step_s))} predicted{_change(*d.step_s)}"
    yield "bound", f"{_pair(*map(duration, d.bound_s))}, as the plans state it"
    alone = f"{d.alone[0]} of the first alone, {d.alone[1]} of the second alone"
    yield "ops", f"{d.both} of both, {'of one graph' if d.same_graph else 'known again by their names'}; {alone}"
    yield from _moved(d)
    share = f" ({percent(d.turned / d.pairs)})" if d.turned else ""
    yield (
        "order",
        f"of {d.stayed} ops that take time and are where they were, {d.new_neighbour} run behind another one than "
        f"before; {d.turned} of {d.pairs} pairs on one processor run the other way round{share}"
        + ("; only ops of no time changed places" if d.untimed_turned else ""),
    )
    yield "transfers", f"{_pair(*map(str, d.transfers))}{_bytes(d)}, {_pair(*map(duration, d.sent_s))} in all"
    for each in d.devices:
        ops, busy, peak = (_pair(*map(form, pair)) for form, pair in _columns(each.ops, each.busy_s, each.peak_bytes))
        yield shown(each.name, 40), f"ops {ops}, busy {busy}, peak {peak}"


def _columns(ops: Any, busy_s: Any, peak: Any) -> tuple[tuple[Any, Any], ...]:
    return (str, ops), (duration, busy_s), (size, peak)


def _pair(one: str, other: str) -> str:
    return one if one == other else f"{one} -> {other}"


def _change(one: float, other: float) -> str:
    return f" ({change(other / one - 1)})" if one and one != other else ""


def _bytes(d: PlanDiff) -> str:
    one, other = d.sent_bytes
    if one is None or other is None:
        return ""
    return f", {_pair(size(one), size(other))}{_change(one, other)} sent"


def _moved(d: PlanDiff) -> Iterator[tuple[str, str]]:
    core = f"; {d.other_core} to another core" if d.other_core else ""
    work = duration(sum(each.seconds for each in d.moved))
    groups = f", {work} of work, in {plural(len(d.moved), 'group')}" if d.moved else ""
    yield "moved", f"{d.moved_ops} of {d.both} ops to another device{groups}{core}"
    for each in d.moved[:_ROWS]:
        yield "", _group(each)
    rest = d.moved[_ROWS:]
    if rest:
        work = duration(sum(each.seconds for each in rest))
        yield "", f"{plural(len(rest), 'more group')}: {plural(sum(each.ops for each in rest), 'op')}, {work}"


def _group(each: MovedOps) -> str:
    scope = shown(shorten(each.scope, 60), 60)
    return f"{each.before} -> {each.after}: {scope}, {plural(each.ops, 'op')}, {duration(each.seconds)}"


def diff_object(d: PlanDiff) -> dict[str, Any]:
    """All of the difference; what has two values is [first, second]."""
    order = {
        "ops": d.stayed,
        "new_neighbour": d.new_neighbour,
        "pairs": d.pairs,
        "turned": d.turned,
        "turned_share": d.turned / d.pairs if d.pairs else 0.0,
        "untimed_turned": d.untimed_turned,
    }
    return {
        "differ": d.differ,
        "same_graph": d.same_graph,
        "step_s": list(d.step_s),
        "bound_s": list(d.bound_s),
        "cluster": list(d.cluster),
        "ops": {"both": d.both, "first_alone": d.alone[0], "second_alone": d.alone[1]},
        "moved": {"ops": d.moved_ops, "other_core": d.other_core, "groups": [asdict(each) for each in d.moved]},
        "order": order,
        "transfers": list(d.transfers),
        "sent_bytes": list(d.sent_bytes),
        "sent_s": list(d.sent_s),
        "devices": [asdict(each) for each in d.devices],
    }
