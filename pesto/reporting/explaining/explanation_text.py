"""An explanation in sentences with numbers, and as one JSON object, which docs/guides/explain.md describes."""

from collections.abc import Iterator
from typing import Any

from pesto.core.files.json import shown
from pesto.core.problem import TICK_S
from pesto.core.quantities import change, duration, percent, plural, shorten, size
from pesto.reporting.explaining.bottlenecks import LONG, MEMORY
from pesto.reporting.explaining.explanation import Explanation, OpFacts

_WIDE = 60
"""Characters of a name."""
_SCOPES, _LISTED = 6, 3
"""Scopes, and ops of a list, that a sentence names."""


def sentences(e: Explanation) -> Iterator[tuple[str, str]]:
    """Yield (word, sentence) of everything, in the order in which a page has it."""
    order = " in the order that the framework is predicted to take" if e.step.plan.placement_only else ""
    quick = ""
    if e.quick_bound_ticks < e.bound_ticks:
        quick = f"; by the quick bounds, which those below are, {_time(e.quick_bound_ticks)}"
    yield "step", f"{_time(e.step_ticks)} predicted{order}; no plan takes less than {_time(e.bound_ticks)}{quick}"
    yield from _path(e)
    if not e.blockers:
        text = f"no op of the path that takes {percent(LONG)} of the step or more lets other accelerators idle"
        yield "blockers", text
    for each in e.blockers:
        text = (
            f"{_named(each.op)} takes {_time(each.ticks)} on {each.device}, under which the other accelerators idle "
            f"{_time(each.idle_ticks)}"
        )
        if each.parts < 2:
            text += "; no other device can take a part of it"
        else:
            text += f"; split over {each.parts} devices it saves {_share(e, each.split_saves_ticks)} at most"
        yield "blockers" if each is e.blockers[0] else "", text
    if len(e.blockers) > 1:
        yield "", f"all {len(e.blockers)} of them split save {_share(e, e.split_all_ticks)} at most"
    for row in e.helps:
        who = "the shortest candidate" if row.what == MEMORY else "the same plan"
        same = "" if row.step_ticks is None else f"{who} takes {_against(e, row.step_ticks)}, and "
        bound = "" if row.bound_ticks is None else f"no plan less than {_time(row.bound_ticks)}"
        text = f"{same}{bound} ({row.detail})" if same or bound else row.detail
        yield "would help" if row is e.helps[0] else "", f"{_named(row.change)}: {text}"
    if not e.ties:
        yield "ties", "no group holds several variables with most of the bytes, or much of the work"
    for tie in e.ties:
        held = f" with {plural(tie.variables, 'variable')} ({size(tie.bytes)})" if tie.variables else ""
        text = (
            f"{_named(tie.op)} and {plural(tie.ops - 1, 'more op')}{held} share {tie.device}, "
            f"{percent(tie.work_share)} of all work; free, they would save {_share(e, tie.gain_ticks)} at most (bound "
            f"{_time(tie.free_bound_ticks)}){f' - {tie.remedy}' if tie.remedy else ''}"
        )
        yield "ties" if tie is e.ties[0] else "", text
    if e.op:
        yield from _op_sentences(e, e.op)


def _time(ticks: int) -> str:
    return duration(ticks * TICK_S)


def _named(name: str) -> str:
    return shown(shorten(name, _WIDE), _WIDE)


def _share(e: Explanation, ticks: int) -> str:
    return f"{_time(ticks)} ({percent(ticks / max(1, e.step_ticks))})"


def _against(e: Explanation, ticks: int) -> str:
    """A step's time, and how much more or less than the plan's it is."""
    return f"{_time(ticks)} ({'the same' if ticks == e.step_ticks else change(ticks / max(1, e.step_ticks) - 1)})"


def _path(e: Explanation) -> Iterator[tuple[str, str]]:
    legs = e.path.legs
    parts = {
        "compute": f"compute in {plural(legs['compute'], 'op')}",
        "transfer": f"transfers ({legs['transfer']})",
        "link wait": f"waits for a link that others held ({legs['link wait']})",
        "begin": "before it begins",
    }
    times = [f"{_share(e, e.path.ticks[kind])} {text}" for kind, text in parts.items()]
    yield "path", f"the longest chain of waits is {', '.join(times)}"
    waited = {cause: f"{ops} ({_time(took)})" for cause, (ops, took) in e.path.waited.items()}
    yield (
        "waited for",
        f"of its ops, {waited['data']} start when one ends that they follow, {waited['transfer']} when a tensor "
        f"arrives, {waited['device']} when their device is free, {waited['begin']} with the step",
    )
    scopes = list(e.path.scopes.items())[:_SCOPES]
    if scopes:
        yield "scopes", "it computes " + ", ".join(f"{_time(took)} in {_named(scope)}" for scope, took in scopes)


def _op_sentences(e: Explanation, op: OpFacts) -> Iterator[tuple[str, str]]:
    times = f"from {_time(op.start)} to {_time(op.finish)}, slack {_time(op.slack)}"
    yield "op", f"{_named(op.op)} runs on {op.lane} {times}"
    after = _named(op.after)
    held = f", which waited {_time(op.waited_ticks)} for a link" if op.waited_ticks else ""
    by = f" that what {_named(op.held_by)} sent held" if op.held_by else ""
    causes = {
        "begin": "nothing: it starts with the step",
        "data": f"{after} to end, which it follows",
        "device": f"its device: {after} was before it there",
        "transfer": f"a tensor of {after} to arrive{held}{by}",
    }
    yield "waited for", causes[op.cause]
    more = len(op.followers) - _LISTED
    listed = [*map(_named, op.followers[:_LISTED]), *([f"{more} more"] if more > 0 else [])]
    yield "waits for it", f"{', '.join(listed) or 'no op'}; {plural(op.readers, 'op')} must come after it"
    if op.group:
        variables = f" and {size(op.group_bytes)} of variables" if op.group_bytes else ""
        members = ", ".join(map(_named, op.group[:_LISTED]))
        yield "group", f"{plural(len(op.group), 'op')}{variables} share its device, such as {members}"
    others = "" if op.moves else "; there is no other device"
    yield "elsewhere", f"it has kernels for {', '.join(op.kinds)}{others}"
    for move in op.moves:
        if move.same_order_ticks is None or move.listed_ticks is None:
            yield "", f"{move.device}: not possible, {move.forbidden}"
            continue
        what = f"{_against(e, move.listed_ticks)} re-listed, {_against(e, move.same_order_ticks)} in the same order"
        short = f", but some device lacks {size(move.short_bytes)}" if move.short_bytes else ""
        yield "", f"{move.device}: the step takes {what}{short}"


def explanation_object(e: Explanation) -> dict[str, Any]:
    """Return all that is explained; seconds have nine digits behind the point, which are ticks."""
    result: dict[str, Any] = {
        "step_s": _seconds(e.step_ticks),
        "bound_s": _seconds(e.bound_ticks),
        "quick_bound_s": _seconds(e.quick_bound_ticks),
        "path": {f"{kind.replace(' ', '_')}_s": _seconds(ticks) for kind, ticks in e.path.ticks.items()},
        "path_ops": e.path.legs["compute"],
        "waited_for": {cause: {"ops": n, "compute_s": _seconds(t)} for cause, (n, t) in e.path.waited.items()},
        "scopes": {scope: _seconds(ticks) for scope, ticks in e.path.scopes.items()},
        "blockers": [
            {"op": b.op, "device": b.device, "seconds": _seconds(b.ticks), "idle_s": _seconds(b.idle_ticks),
             "parts": b.parts, "split_saves_s": _seconds(b.split_saves_ticks)}
            for b in e.blockers
        ],
        "split_all_saves_s": _seconds(e.split_all_ticks),
        "helps": [
            {"what": row.what, "change": row.change, "step_s": _seconds(row.step_ticks),
             "bound_s": _seconds(row.bound_ticks), "detail": row.detail}
            for row in e.helps
        ],
        "ties": [
            {"op": tie.op, "device": tie.device, "ops": tie.ops, "variables": tie.variables, "bytes": tie.bytes,
             "seconds": _seconds(tie.ticks), "work_share": tie.work_share,
             "free_bound_s": _seconds(tie.free_bound_ticks), "gain_at_most_s": _seconds(tie.gain_ticks),
             "remedy": tie.remedy}
            for tie in e.ties
        ],
    }  # fmt: skip
    op = e.op
    if op is None:
        return result
    link_wait = {"link_wait_s": _seconds(op.waited_ticks), "link_held_by": op.held_by}
    moves = [
        {"device": move.device, "forbidden": move.forbidden, "same_order_s": _seconds(move.same_order_ticks),
         "listed_s": _seconds(move.listed_ticks), "short_bytes": move.short_bytes}
        for move in op.moves
    ]  # fmt: skip
    facts = {
        "op": op.op, "device": op.device, "lane": op.lane, "start_s": _seconds(op.start),
        "finish_s": _seconds(op.finish), "slack_s": _seconds(op.slack),
        "waited_for": {"cause": op.cause, "op": op.after, **link_wait}, "followers": list(op.followers),
        "readers": op.readers, "kinds": list(op.kinds), "group": list(op.group), "group_bytes": op.group_bytes,
        "moves": moves,
    }  # fmt: skip
    return result | {"op": facts}


def _seconds(ticks: int | None) -> float | None:
    return None if ticks is None else round(ticks * TICK_S, 9)
