"""pesto check of a split: what is confirmed, for people and as JSON."""

import click
import msgspec

from pesto.cli.printed import answer
from pesto.plans.statements import NOT_CHECKED
from pesto.quantities import counted, size
from pesto.show.lines import paragraph
from pesto.show.split_page import least_known
from pesto.split.files.checked import Certificate, certified, unconfirmed, verified
from pesto.split.files.split_file import SplitFile
from pesto.split.shaped import Shaped

BOUND_SECONDS = 600.0
"""For finding all bounds of a split once more."""


def check_split(found: SplitFile, shaped: Shaped, *, certificate: bool, as_json: bool) -> None:
    """Verify a split on its step, and print what is confirmed; errors as of `pesto.split.files.checked`."""
    verified(found, shaped)
    bounds = certified(found, shaped, seconds=BOUND_SECONDS) if certificate else None
    if as_json:
        said = {"valid": True, "split": found.what, "ops": shaped.ops, "factors": list(found.factors),
                "bytes": found.bytes, "params_per_worker_bytes": found.params_per_worker_bytes}  # fmt: skip
        answer({**said, **(_keys(found, bounds) if certificate else {})})
        return
    factors, for_cuts = "x".join(map(str, found.factors)), " for what is cut" if found.places else ""
    at_most = " at most" if found.places else ""
    lines = [
        f"valid; {counted(shaped.ops, 'op')} in {factors} parts, {size(found.bytes)} sent a step{for_cuts}, "
        f"{size(found.params_per_worker_bytes)} of parameters a worker{at_most}"
    ]
    if certificate:
        lines += [_bound(found, bounds), f"{NOT_CHECKED}: {', '.join(unconfirmed(found, bounds))}"]
    click.echo("\n".join(paragraph(f"{found.what}: {line}", 2) for line in lines))


def _keys(found: SplitFile, bounds: Certificate | None) -> dict[str, object]:
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


def _bound(found: SplitFile, bounds: Certificate | None) -> str:
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
