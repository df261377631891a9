"""An explanation as one JSON object, which docs/guides/explain.md describes."""

from typing import Any

from pesto.core.problem import TICK_S
from pesto.reporting.explaining.bottlenecks import Bottleneck
from pesto.reporting.explaining.explanation import Explanation
from pesto.reporting.explaining.improvements import Improvement
from pesto.reporting.explaining.op_facts import Move, OpFacts
from pesto.reporting.explaining.tied_groups import TiedGroup


def explanation_object(explanation: Explanation) -> dict[str, Any]:
    """All that is explained; seconds have nine digits behind the point, which are ticks."""
    e = explanation
    result: dict[str, Any] = {
        "step_s": _seconds(e.step_ticks),
        "bound_s": _seconds(e.bound_ticks),
        "quick_bound_s": _seconds(e.quick_bound_ticks),
        "path": {f"{kind.replace(' ', '_')}_s": _seconds(ticks) for kind, ticks in e.path.ticks.items()},
        "path_ops": e.path.legs["compute"],
        "waited_for": {cause: {"ops": n, "compute_s": _seconds(t)} for cause, (n, t) in e.path.waited.items()},
        "scopes": {scope: _seconds(ticks) for scope, ticks in e.path.scopes.items()},
        "blockers": [_blocker(each) for each in e.blockers],
        "split_all_saves_s": _seconds(e.split_all_ticks),
        "helps": [_help(each) for each in e.helps],
        "ties": [_tie(each) for each in e.ties],
    }
    return result | ({"op": _op(e.op)} if e.op else {})


def _seconds(ticks: int | None) -> float | None:
    return None if ticks is None else round(ticks * TICK_S, 9)


def _blocker(each: Bottleneck) -> dict[str, Any]:
    return {
        "op": each.op,
        "device": each.device,
        "seconds": _seconds(each.ticks),
        "idle_s": _seconds(each.idle_ticks),
        "parts": each.parts,
        "split_saves_s": _seconds(each.split_saves_ticks),
    }


def _help(each: Improvement) -> dict[str, Any]:
    return {
        "what": each.what,
        "change": each.change,
        "step_s": _seconds(each.step_ticks),
        "bound_s": _seconds(each.bound_ticks),
        "detail": each.detail,
    }


def _tie(each: TiedGroup) -> dict[str, Any]:
    return {
        "op": each.op,
        "device": each.device,
        "ops": each.ops,
        "variables": each.variables,
        "bytes": each.bytes,
        "seconds": _seconds(each.ticks),
        "work_share": each.work_share,
        "free_bound_s": _seconds(each.free_bound_ticks),
        "gain_at_most_s": _seconds(each.gain_ticks),
        "remedy": each.remedy,
    }


def _op(op: OpFacts) -> dict[str, Any]:
    return {
        "op": op.op,
        "device": op.device,
        "lane": op.lane,
        "start_s": _seconds(op.start),
        "finish_s": _seconds(op.finish),
        "slack_s": _seconds(op.slack),
        "waited_for": {
            "cause": op.cause,
            "op": op.after,
            "link_wait_s": _seconds(op.waited_ticks),
            "link_held_by": op.held_by,
        },
        "followers": list(op.followers),
        "readers": op.readers,
        "kinds": list(op.kinds),
        "group": list(op.group),
        "group_bytes": op.group_bytes,
        "moves": [_move(each) for each in op.moves],
    }


def _move(each: Move) -> dict[str, Any]:
    return {
        "device": each.device,
        "forbidden": each.forbidden,
        "same_order_s": _seconds(each.same_order_ticks),
        "listed_s": _seconds(each.listed_ticks),
        "short_bytes": each.short_bytes,
    }
