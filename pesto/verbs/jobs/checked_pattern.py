"""A pipeline's pattern that is verified: what of it is confirmed, for people and as JSON."""

from dataclasses import dataclass

from pesto.core.files.pattern_file import read_pattern
from pesto.core.quantities import counted, percent
from pesto.pipelining.pattern_certificate import PatternBounds, certified, verified
from pesto.pipelining.pipeline import AT_ONCE
from pesto.reporting.show.lines import paragraph
from pesto.reporting.show.pipelines.pipeline_page import bound_object, bound_text, period_object, ticks_text
from solvers.pipelining.pattern_json import PatternInstance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedPattern:
    """A pattern that is verified on the chain and the devices within its file."""

    pattern: PatternInstance
    what: str
    known: PatternBounds | None
    """Its bounds, where they were asked for."""

    @classmethod
    def of(cls, data: bytes, what: str, *, certificate: bool) -> "CheckedPattern":
        """Verify the pattern of a file's bytes; errors as of `read_pattern` and `verified`."""
        found = read_pattern(data, what)
        verified(found, what)
        return cls(pattern=found, what=what, known=certified(found) if certificate else None)

    def as_object(self) -> dict[str, object]:
        """The keys of `pesto check --json`; with a certificate those of the bounds, too."""
        found, known, pattern = self.pattern, self.known, self.pattern.pattern
        said = {"valid": True, "schedule": found.schedule, "layers": found.of.chain.layers,
                "devices": found.allocation.devices, "k": pattern.k, "T": pattern.T,
                **period_object("period", pattern.period), "memory_bytes": found.memory,
                "memory_model": found.model.value, "peak_bytes": found.peaks.tolist()}  # fmt: skip
        bounds = {} if known is None else {
            "bound": bound_object(known.bound), "stage_bound": bound_object(known.stage_bound), "gap": known.gap,
        }  # fmt: skip
        return {**said, **bounds}

    def page(self) -> str:
        """What `pesto check` prints."""
        found, known = self.pattern, self.known
        lines = [
            f"valid; {counted(found.of.chain.layers, 'layer')} on {counted(found.allocation.devices, 'device')}, "
            f"{ticks_text(found.pattern.period)} ticks a batch, at most {found.peaks.max()} bytes "
            f"{_room(found.machines.limits)} on a device"
        ]
        if known is not None:
            at_once = " that does each half at once" if known.stage_bound.name == AT_ONCE else ""
            lines += [
                f"no schedule of any stages is below {bound_text(known.bound)}, which leaves {percent(known.gap)}; "
                f"none of these stages{at_once} is below {bound_text(known.stage_bound)}"
            ]
        return "\n".join(paragraph(f"{self.what}: {line}", 2) for line in lines)


def _room(limits: list[int | None]) -> str:
    if len(set(limits)) > 1:
        return "(each within its own)"
    return "without a limit" if limits[0] is None else f"of {limits[0]}"
