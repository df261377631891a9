"""A split that is verified: what of it is confirmed, for people and as JSON."""

from dataclasses import dataclass

import msgspec

from pesto.core.plans.statements import NOT_CHECKED
from pesto.core.quantities import counted, size
from pesto.reporting.show.lines import paragraph
from pesto.reporting.show.split_page import least_known
from pesto.split.files.split_check import SplitBounds, certified, unconfirmed, verified
from pesto.split.files.split_file import SplitFile
from pesto.split.typed_graph import TypedGraph

BOUND_SECONDS = 600.0
"""For finding all bounds of a split once more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedSplit:
    """A split that is verified on its step."""

    split: SplitFile
    shaped: TypedGraph
    certificate: bool
    """Whether its bounds were asked for."""
    bounds: SplitBounds | None
    """What was found of them, where its method gives some."""

    @classmethod
    def of(cls, split: SplitFile, shaped: TypedGraph, *, certificate: bool) -> "CheckedSplit":
        """Verify a split on its step; errors as of `pesto.split.files.split_check`."""
        verified(split, shaped)
        bounds = certified(split, shaped, seconds=BOUND_SECONDS) if certificate else None
        return cls(split=split, shaped=shaped, certificate=certificate, bounds=bounds)

    def as_object(self) -> dict[str, object]:
        """The keys of `pesto check --json`; with a certificate those of the bounds, too."""
        split = self.split
        said = {"valid": True, "executed": False, "split": split.what, "ops": self.shaped.ops,
                "factors": list(split.factors), "bytes": split.bytes,
                "params_per_worker_bytes": split.params_per_worker_bytes}  # fmt: skip
        return {**said, **(_keys(split, self.bounds) if self.certificate else {})}

    def page(self) -> str:
        """What `pesto check` prints."""
        split = self.split
        factors, for_cuts = "x".join(map(str, split.factors)), " for what is cut" if split.places else ""
        at_most = " at most" if split.places else ""
        lines = [
            f"valid; {counted(self.shaped.ops, 'op')} in {factors} parts, {size(split.bytes)} sent a step{for_cuts}, "
            f"{size(split.params_per_worker_bytes)} of parameters a worker{at_most}"
        ]
        lines += ["not executed: this is about ways, layouts and bytes; pesto run compares what the parts compute"]
        if self.certificate:
            lines += [_bound(split, self.bounds), f"{NOT_CHECKED}: {', '.join(unconfirmed(split, self.bounds))}"]
        return "\n".join(paragraph(f"{split.what}: {line}", 2) for line in lines)


def _keys(found: SplitFile, bounds: SplitBounds | None) -> dict[str, object]:
    return {
        "status": found.status,
        "bound_bytes": found.bound_bytes,
        "recomputed_bound_bytes": bounds.found[-1] if bounds else None,
        "bound_confirmed": bounds is not None and bounds.confirmed,
        "cuts": [
            {**msgspec.to_builtins(cut), "recomputed_bound_bytes": bound}
            for cut, bound in zip(found.cuts, bounds.found if bounds else [None] * len(found.cuts), strict=True)
        ],
        "rests_on": list(bounds.rests_on) if bounds else [],
        "not_checked": unconfirmed(found, bounds),
    }


def _bound(found: SplitFile, bounds: SplitBounds | None) -> str:
    """What is known of the bound, and what that rests on."""
    claim = f"lower bound {size(found.bound_bytes)}"
    if bounds is None and not found.bound_bytes:
        return f"no bound is known of a split by the method {found.method}"
    if bounds is None:
        return f"{claim}, which is the word of the method {found.method}: its cuts were not made one by one"
    after = " after the cuts before it, for each cut" if len(found.cuts) > 1 else ""
    known = "confirmed" if bounds.confirmed else f"not confirmed, only {size(bounds.found[-1])} of the last cut"
    number, least, value = least_known([(cut.bound_bytes, cut.bytes) for cut in found.cuts])
    wide = f" (cut {number} has {size(least)}, of {size(value)})" if number < len(found.cuts) else ""
    return f"{claim}{after}{wide}: {known}, by solving again; that rests on {', '.join(bounds.rests_on)}"
