"""A page and the keys of one emulation, and of the methods that were emulated against it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pesto.core.graph import FUNCTION, SESSION
from pesto.core.plans.execution_modes import GRAPHDEF
from pesto.core.quantities import duration, percent, plural
from pesto.reporting.show.lines import fact, paragraph

if TYPE_CHECKING:
    from pesto.tf.emulate.emulation import EmulationResult

_WAYS = {
    SESSION: "a v1 session under pesto.apply",
    GRAPHDEF: "the GraphDef that pesto apply writes",
    FUNCTION: "one function, as pesto.apply and pesto.place run a tf.function",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A method's plan, emulated like the plan; None and why where it has none, or its step is too long to emulate."""

    method: str
    """Name in the table of methods, `plan` for the plan itself."""
    predicted_s: float | None
    """Seconds of its step as simulated."""
    emulated_s: float | None
    """Seconds of its step as emulated, its order enforced."""
    why: str = ""
    """Why it has no plan, or was not emulated."""


def swapped_pairs(rivals: Sequence[Rival]) -> list[tuple[str, str]]:
    """Pairs of methods of which the emulation has the second quicker and the prediction the first."""
    timed = [
        (r.predicted_s, r.emulated_s, r.method)
        for r in rivals
        if r.predicted_s is not None and r.emulated_s is not None
    ]
    return [(a[2], b[2]) for a in timed for b in timed if a[0] < b[0] and b[1] < a[1]]


def emulation_object(run: "EmulationResult", rivals: Sequence[Rival], what: str) -> dict[str, Any]:
    """The keys of `pesto run --emulate --json`; seconds of seconds, shares as fractions."""
    return {
        "emulation": what,
        "as": run.how.way,
        "clock": run.how.clock,
        "ties": run.how.ties,
        "scale": run.scale,
        "handed_over": run.handed_over,
        "predicted_step_s": run.predicted_s,
        "emulated_step_s": run.step_s,
        "error": run.error,
        "unordered_step_s": run.unordered_step_s,
        "order_gain": run.gain,
        "ops": run.ops,
        "unchained": run.unchained,
        "transfers": run.transfers,
        "unsent": run.unsent,
        "op_inversions": len(run.op_inversions),
        "link_inversions": len(run.link_inversions),
        "drift_max": run.drift_max,
        "drift_mean": run.drift_mean,
        "threads": run.threads,
        "starved": run.starved,
        "seconds": run.seconds,
        "ranking": [
            {"method": r.method, "predicted_step_s": r.predicted_s, "emulated_step_s": r.emulated_s, "why": r.why}
            for r in rivals
        ],
        "ranked_otherwise": [list(pair) for pair in swapped_pairs(rivals)],
    }


def emulation_page(run: "EmulationResult", rivals: Sequence[Rival], source: str, what: str) -> str:
    """A page for people."""
    if run.scale is None:
        ties = "as simulated" if run.how.ties == "planned" else "as the executor reached it"
        clock = f"nominal: handing over costs nothing; what is asked for at one instant is served {ties}"
    else:
        slept = f"wall: {run.scale:.0f} s slept for each predicted second"
        clock = f"{slept}; handing over took {percent(run.handed_over)} of the step; {run.seconds:.0f} s in all"
    first = [*run.op_inversions[:1], *run.link_inversions[:1]]
    facts = {
        "this is": what,
        "of": _WAYS[run.how.way],
        "clock": clock,
        "step": f"{duration(run.step_s)} emulated, {duration(run.predicted_s)} predicted ({signed_percent(run.error)})",
        "order": f"{plural(len(run.op_inversions), 'op')} and {plural(len(run.link_inversions), 'transfer')} "
        f"of one link out of the plan's order{''.join(f'; {line}' for line in first)}",
        "starts": f"ops begin {percent(run.drift_max)} of the step from the planned start at most, "
        f"{percent(run.drift_mean)} on average; {run.unchained} of {run.ops} ops are in no chain",
        "transfers": f"{run.transfers} made, {run.unsent} planned that TensorFlow does not make",
        "gain": f"the order saves {percent(run.gain)} against first in, first out "
        f"({duration(run.unordered_step_s)} emulated)",
    }
    if run.starved:
        threads, often = plural(run.threads, "thread"), plural(run.starved, "time")
        facts["careful"] = (
            f"{threads} {'was' if run.threads == 1 else 'were'} too few {often}: some functions began late"
        )
    head = paragraph(f"{source}: an emulation of {plural(run.ops, 'op')}", 2)
    lines = [head, *(fact(k, text) for k, text in facts.items())]
    if not rivals:
        return "\n".join(lines)
    lines += ["", f"{'method':18s}{'predicted':>12s}{'emulated':>12s}{'apart':>12s}"]
    for r in sorted(rivals, key=lambda r: r.predicted_s or float("inf")):
        if r.predicted_s and r.emulated_s is not None:
            apart = signed_percent(r.emulated_s / r.predicted_s - 1.0)
            lines.append(f"{r.method:18s}{duration(r.predicted_s):>12s}{duration(r.emulated_s):>12s}{apart:>12s}")
        else:
            why = f"{duration(r.predicted_s):>12s}, not emulated: {r.why}" if r.predicted_s else f"no plan: {r.why}"
            lines.append(paragraph(f"{r.method:18s}{why}", 18))
    other = [f"{b} before {a}, predicted after it" for a, b in swapped_pairs(rivals)]
    return "\n".join([*lines, "", fact("ranking", "; ".join(other[:3]) or "as predicted")])


def signed_percent(share: float) -> str:
    """A difference in percent, with its sign."""
    return f"{100 * share:+.2f} %"
