"""pesto check of a pipeline's pattern: what is confirmed, for people and as JSON."""

import click

from pesto.cli.printed import answer
from pesto.files.pattern_file import read_pattern
from pesto.pipelining.kept_pattern import certified, verified
from pesto.pipelining.pipeline import AT_ONCE
from pesto.quantities import counted, percent
from pesto.show.lines import paragraph
from pesto.show.piped.pipeline_page import bound_object, bound_text, period_object, ticks_text


def check_pattern(data: bytes, what: str, *, certificate: bool, as_json: bool) -> None:
    """Verify the pattern of a file's bytes, and print what is confirmed; errors as of `read_pattern` and `verified`."""
    found = read_pattern(data, what)
    verified(found, what)
    known = certified(found) if certificate else None
    pattern, devices = found.pattern, found.allocation.devices
    if as_json:
        said = {"valid": True, "schedule": found.schedule, "layers": found.of.chain.layers, "devices": devices,
                "k": pattern.k, "T": pattern.T, **period_object("period", pattern.period),
                "memory_bytes": found.memory, "memory_model": found.model.value,
                "peak_bytes": found.peaks.tolist()}  # fmt: skip
        bounds = {} if known is None else {
            "bound": bound_object(known.bound), "stage_bound": bound_object(known.stage_bound), "gap": known.gap,
        }  # fmt: skip
        answer({**said, **bounds})
        return
    room = _room(found.machines.limits)
    lines = [
        f"valid; {counted(found.of.chain.layers, 'layer')} on {counted(devices, 'device')}, "
        f"{ticks_text(pattern.period)} ticks a batch, at most {found.peaks.max()} bytes {room} on a device"
    ]
    if known is not None:
        at_once = " that does each half at once" if known.stage_bound.name == AT_ONCE else ""
        lines += [
            f"no schedule of any stages is below {bound_text(known.bound)}, which leaves {percent(known.gap)}; none of "
            f"these stages{at_once} is below {bound_text(known.stage_bound)}"
        ]
    click.echo("\n".join(paragraph(f"{what}: {line}", 2) for line in lines))


def _room(limits: list[int | None]) -> str:
    if len(set(limits)) > 1:
        return "(each within its own)"
    return "without a limit" if limits[0] is None else f"of {limits[0]}"
