"""An explanation in sentences with numbers, each with the word that stands before it on a page."""

from collections.abc import Iterator

from pesto.core.files.json import shown
from pesto.core.problem import TICK_S
from pesto.core.quantities import change, duration, percent, plural, shorten, size
from pesto.reporting.explaining.bottlenecks import LONG, Bottleneck
from pesto.reporting.explaining.explanation import Explanation
from pesto.reporting.explaining.improvements import MEMORY, Improvement
from pesto.reporting.explaining.op_facts import Move, OpFacts
from pesto.reporting.explaining.tied_groups import TiedGroup

_WIDE = 60
"""Characters of a name."""
_SCOPES, _LISTED = 6, 3
"""Scopes, and ops of a list, that a sentence names."""


def sentences(e: Explanation) -> Iterator[tuple[str, str]]:
    """(word, sentence) of everything, in the order in which a page has it."""
    order = " in the order that the framework is predicted to take" if e.step.plan.placement_only else ""
    quick = ""
    if e.quick_bound_ticks < e.bound_ticks:
        quick = f"; by the quick bounds, which those below are, {_time(e.quick_bound_ticks)}"
    yield "step", f"{_time(e.step_ticks)} predicted{order}; no plan takes less than {_time(e.bound_ticks)}{quick}"
    yield from _path(e)
    if not e.blockers:
        yield (
            "blockers",
            f"no op of the path that takes {percent(LONG)} of the step or more lets other accelerators idle",
        )
    for each in e.blockers:
        yield "blockers" if each is e.blockers[0] else "", _blocker(e, each)
    if len(e.blockers) > 1:
        saved = f"{_time(e.split_all_ticks)} ({percent(e.split_all_ticks / max(1, e.step_ticks))})"
        yield "", f"all {len(e.blockers)} of them split save {saved} at most"
    for row in e.helps:
        yield "would help" if row is e.helps[0] else "", _help(e, row)
    if not e.ties:
        yield "ties", "no group holds several variables with most of the bytes, or much of the work"
    for tie in e.ties:
        yield "ties" if tie is e.ties[0] else "", _tie(e, tie)
    if e.op:
        op = e.op
        yield (
            "op",
            f"{_named(op.op)} runs on {op.lane} from {_time(op.start)} to {_time(op.finish)}, slack {_time(op.slack)}",
        )
        yield "waited for", _waited(op)
        more = len(op.followers) - _LISTED
        listed = [*map(_named, op.followers[:_LISTED]), *([f"{more} more"] if more > 0 else [])]
        yield "waits for it", f"{', '.join(listed) or 'no op'}; {plural(op.readers, 'op')} must come after it"
        if op.group:
            held = f" and {size(op.group_bytes)} of variables" if op.group_bytes else ""
            members = ", ".join(map(_named, op.group[:_LISTED]))
            yield "group", f"{plural(len(op.group), 'op')}{held} share its device, such as {members}"
        yield (
            "elsewhere",
            f"it has kernels for {', '.join(op.kinds)}" + ("" if op.moves else "; there is no other device"),
        )
        for move in op.moves:
            yield "", _move(e, move)


def _time(ticks: int) -> str:
    return duration(ticks * TICK_S)


def _named(name: str) -> str:
    return shown(shorten(name, _WIDE), _WIDE)


def _path(e: Explanation) -> Iterator[tuple[str, str]]:
    ticks, legs, most = e.path.ticks, e.path.legs, max(1, e.step_ticks)
    parts = {
        "compute": f"compute in {plural(legs['compute'], 'op')}",
        "transfer": f"transfers ({legs['transfer']})",
        "link wait": f"waits for a link that others held ({legs['link wait']})",
        "begin": "before it begins",
    }
    told = [f"{_time(ticks[kind])} ({percent(ticks[kind] / most)}) {text}" for kind, text in parts.items()]
    yield "path", f"the longest chain of waits is {', '.join(told)}"
    waited = {cause: f"{ops} ({_time(took)})" for cause, (ops, took) in e.path.waited.items()}
    yield (
        "waited for",
        f"of its ops, {waited['data']} start when one ends that they follow, {waited['transfer']} when a tensor "
        f"arrives, {waited['device']} when their device is free, {waited['begin']} with the step",
    )
    scopes = list(e.path.scopes.items())[:_SCOPES]
    if scopes:
        yield "scopes", "it computes " + ", ".join(f"{_time(took)} in {_named(scope)}" for scope, took in scopes)


def _blocker(e: Explanation, each: Bottleneck) -> str:
    under = (
        f"{_named(each.op)} takes {_time(each.ticks)} on {each.device}, under which the other accelerators idle "
        f"{_time(each.idle_ticks)}"
    )
    if each.parts < 2:
        return f"{under}; no other device can take a part of it"
    saved = f"{_time(each.split_saves_ticks)} ({percent(each.split_saves_ticks / max(1, e.step_ticks))})"
    return f"{under}; split over {each.parts} devices it saves {saved} at most"


def _help(e: Explanation, row: Improvement) -> str:
    if row.step_ticks is None and row.bound_ticks is None:
        return f"{_named(row.change)}: {row.detail}"
    who = "the shortest candidate" if row.what == MEMORY else "the same plan"
    same = "" if row.step_ticks is None else f"{who} takes {_against(e, row.step_ticks)}, and "
    bound = "" if row.bound_ticks is None else f"no plan less than {_time(row.bound_ticks)}"
    return f"{_named(row.change)}: {same}{bound} ({row.detail})"


def _against(e: Explanation, ticks: int) -> str:
    """A step's time, and how much more or less than the plan's it is."""
    if ticks == e.step_ticks:
        return f"{_time(ticks)} (the same)"
    return f"{_time(ticks)} ({change(ticks / max(1, e.step_ticks) - 1)})"


def _tie(e: Explanation, tie: TiedGroup) -> str:
    held = f" with {plural(tie.variables, 'variable')} ({size(tie.bytes)})" if tie.variables else ""
    gain = f"{_time(tie.gain_ticks)} ({percent(tie.gain_ticks / max(1, e.step_ticks))})"
    text = (
        f"{_named(tie.op)} and {plural(tie.ops - 1, 'more op')}{held} share {tie.device}, {percent(tie.work_share)} "
        f"of all work; free, they would save {gain} at most (bound {_time(tie.free_bound_ticks)})"
    )
    return f"{text} - {tie.remedy}" if tie.remedy else text


def _waited(op: OpFacts) -> str:
    after = _named(op.after)
    if op.cause == "transfer":
        held = f", which waited {_time(op.waited_ticks)} for a link" if op.waited_ticks else ""
        by = f" that what {_named(op.held_by)} sent held" if op.held_by else ""
        return f"a tensor of {after} to arrive{held}{by}"
    return {
        "begin": "nothing: it starts with the step",
        "data": f"{after} to end, which it follows",
        "device": f"its device: {after} was before it there",
    }[op.cause]


def _move(e: Explanation, move: Move) -> str:
    if move.same_order_ticks is None or move.listed_ticks is None:
        return f"{move.device}: not possible, {move.forbidden}"
    what = f"{_against(e, move.listed_ticks)} re-listed, {_against(e, move.same_order_ticks)} in the same order"
    short = f", but some device lacks {size(move.short_bytes)}" if move.short_bytes else ""
    return f"{move.device}: the step takes {what}{short}"
