"""A split verified from scratch, on the step itself: strategies, layouts, bytes; and its bound, by solving again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from pesto.core.errors import SolverError, VerificationError
from pesto.core.files.json import shown
from pesto.split.division import Division, readers
from pesto.split.files.recount import divides_evenly, recount_bytes, recount_parameters, strategy_fault
from pesto.split.files.split_file import CutRecord, SplitFile, division_of
from pesto.split.geometry import ONE, PARTIAL, WHOLE, Need
from pesto.split.methods.cut import solve_limited_cut
from pesto.split.op_strategy import ONCE_WAY, OpStrategy, gives_summands
from pesto.split.program import build_program
from pesto.split.typed_graph import RANK, TypedGraph
from pesto.split.worker_parts import build_worker_parts
from solvers.labels.label_methods import solve

_DESCRIBED = "the descriptions of op types"
_PROBLEM = "made as the search makes it, where each layout is received on its own"
_ONE_BY_ONE = (
    _DESCRIBED, f"the labelling problem of each cut, {_PROBLEM}",
    "HiGHS's word for linear programs, within a billionth",
)  # fmt: skip
_AT_ONCE = (_DESCRIBED, f"the labelling problem of all cuts, {_PROBLEM}")
_MOST_FAULTS = 3


def verify_split(split_file: SplitFile, shaped: TypedGraph) -> Division:
    """Return the division that a file says of its step; everything in it but the bound is confirmed.

    Raise MismatchError if the file is of another step; VerificationError if an op has no such strategy or what it reads
    of a worker's parts is not in them, a layout does not divide its shape, variables and slots do not lie alike, or
    bytes are others.
    """
    division = division_of(split_file, shaped)
    faults = list(islice(_division_faults(split_file, shaped, division), _MOST_FAULTS + 1))
    faults += [] if faults else [*_claim_faults(split_file, shaped, division)]
    if faults:
        more = " (and more)" if len(faults) > _MOST_FAULTS else ""
        raise VerificationError.build(
            f"the split is invalid: {'; '.join(faults[:_MOST_FAULTS])}{more}",
            where=split_file.what,
            remedy="split the step again",
        )
    return division


def _division_faults(split_file: SplitFile, shaped: TypedGraph, division: Division) -> Iterator[str]:
    seen: set[tuple[int, OpStrategy, bool]] = set()
    for op, strategy in enumerate(division.strategies):
        key = int(shaped.signature_of[op]), strategy, bool(shaped.once[op])
        if key not in seen:
            seen.add(key)
            halo = split_file.rules.halo
            wrong = strategy_fault(shaped.signature(op), strategy, division.factors, once=key[2], halo=halo)
            if wrong:
                yield f"{_op(shaped, op)}, divided along {' '.join(map(shown, strategy.names))}: {wrong}"
    for op, (layouts, strategy) in enumerate(zip(division.kept, division.strategies, strict=True)):
        signature = shaped.signature(op)
        for output, at in enumerate(layouts):
            shape, _ = signature.outputs[output]
            bounded = signature.bounded_output(output)
            if bounded and any(layout >= 0 and (layout in bounded or RANK in bounded) for layout in at):
                yield f"output {output} of {_op(shaped, op)} lies in parts along a dimension whose extent data decide"
            even = divides_evenly(shape or (), at, division.factors)
            # A layout below WHOLE is of ONE worker alone, or of summands, kept just as the op computes them.
            summands = ONE not in at and gives_summands(strategy, output) and at == strategy.gives[output]
            if {*at} != {ONE} and (not even or (min(at) < WHOLE and not summands)):
                yield f"output {output} of {_op(shaped, op)} cannot lie as {list(at)}"
    yield from _reader_faults(shaped, division)
    yield from _variable_faults(shaped, division)
    yield from _place_faults(shaped, division)
    cuts, last = split_file.cuts, split_file.cuts[-1]
    if split_file.for_seconds and (split_file.bound_bytes or any(cut.bound_bytes for cut in cuts)):
        yield "it is made for seconds, and bounds bytes"
    if any(cut.bound_bytes > cut.bytes for cut in cuts) or split_file.bound_bytes > last.bytes:
        yield "a bound is above the bytes"
    if split_file.bound_bytes != last.bound_bytes:
        yield "its bound is not that of its last cut"
    if any(cut.status == "optimal" and cut.bound_bytes < cut.bytes for cut in cuts):
        yield "a cut is said to be optimal, and its bound is below its bytes"
    if split_file.status == "optimal" and any(cut.status != "optimal" for cut in cuts):
        yield "it is said to be optimal, and not all of its cuts"


def _reader_faults(shaped: TypedGraph, division: Division) -> Iterator[str]:
    """Yield readers that take summands for the tensor, or a tensor for summands."""
    for (op, output), read_by in readers(shaped).items():
        kept = division.kept[op][output]
        for reader, at in read_by:
            needs = division.strategies[reader].needs[at]
            if PARTIAL in (*kept, *needs) and kept != needs:
                yield f"{_op(shaped, reader)} needs input {at} as {list(needs)}, and it lies as {list(kept)}"


def _variable_faults(shaped: TypedGraph, division: Division) -> Iterator[str]:
    """Yield variables of one tie that lie otherwise, or not as an op that takes their handle needs."""
    first_of: dict[int, int] = {}
    for variable, tie in enumerate(shaped.tie.tolist()):
        first = first_of.setdefault(tie, variable)
        if division.variables[first] != division.variables[variable]:
            one, other = (_op(shaped, int(shaped.handle[v])) for v in (first, variable))
            yield f"the variables of {one} and {other} lie otherwise, and an op takes both"
    for op, at, variable in shaped.uses:
        layouts = division.variables[variable]
        handed = division.kept[op] if shaped.signature(op).type == "ReadVariableOp" else ()
        if division.strategies[op].need(at) != Need(layouts) or any(kept != layouts for kept in handed):
            yield f"{_op(shaped, op)} takes a variable that lies as {list(layouts)}, and needs it otherwise"
    # A handle is on the one worker that has its variable, or on all with their parts.
    for variable, op in enumerate(shaped.handle.tolist()):
        if (ONCE_WAY in division.strategies[op].names) != (ONE in division.variables[variable]):
            yield f"{_op(shaped, op)} makes a handle on other workers than those that hold its variable"


def _place_faults(shaped: TypedGraph, division: Division) -> Iterator[str]:
    """Yield parts without a device, parts of one op on one device, and ops on another device than their variable."""
    if not division.places:
        if any(
            ONCE_WAY in strategy.names
            for strategy, once in zip(division.strategies, shaped.once, strict=True)
            if not once
        ):
            yield "it has no places, and ops that are whole"
        return
    parts = build_worker_parts(shaped, replace(division, places=()))
    if len(division.places) != len(parts.parts):
        yield f"it has {len(division.places)} places, and {len(parts.parts)} parts"
        return
    place, clone = np.array(division.places), parts.clone
    where = np.where(clone >= 0, place[clone], -1)
    for op, row in enumerate(where):
        mine = row[row >= 0]
        if len(np.unique(mine)) < len(mine):
            yield f"two parts of {_op(shaped, op)} are on one device"
    handle = shaped.handle[shaped.use_variable]
    apart = ((where[shaped.use_op] != where[handle]) & (where[shaped.use_op] >= 0)).any(axis=1)
    for op in shaped.use_op[apart].tolist():
        yield f"{_op(shaped, op)} is on another device than the variable that it takes"


def _claim_faults(split_file: SplitFile, shaped: TypedGraph, division: Division) -> Iterator[str]:
    held = split_file.params_per_worker_bytes
    for what, claimed, counted in (
        ("bytes", split_file.bytes, recount_bytes(shaped, division)),
        ("parameter bytes a worker", held, recount_parameters(shaped, division)),
    ):
        if claimed != counted:
            yield f"it says {claimed} {what}, and there are {counted}"
    many = len(split_file.factors)
    ends = range(1, 1 + many) if len(split_file.cuts) == many else (many,)
    for at, (cuts, cut) in enumerate(zip(ends, split_file.cuts[-len(ends) :], strict=True), start=1):
        before = division if cuts == many else _before(split_file, shaped, cuts)
        sent = recount_bytes(shaped, before) if before is not None else 0
        if cut.bytes < sent:
            yield f"cut {at} counts {cut.bytes} bytes, and {sent} are sent once it is made"
    limit = split_file.rules.memory_bytes
    if limit is not None and held > limit:
        yield f"a worker holds {held} bytes of variables, by its rules {limit} at most"


def _op(shaped: TypedGraph, op: int) -> str:
    return f"op {shown(shaped.names[op])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBounds:
    """The bounds of a split's cuts, computed again."""

    claimed: tuple[CutRecord, ...]
    """Status and bytes that the file claims for each cut."""
    recomputed: tuple[int, ...]
    """[cuts] lower bound on the bytes of each cut after those before it; 0 if none was computed."""
    rests_on: tuple[str, ...]
    """Remaining assumptions of the bounds."""

    @property
    def confirmed(self) -> bool:
        """True if no claimed bound is above the computed one."""
        return all(cut.bound_bytes <= bound for cut, bound in zip(self.claimed, self.recomputed, strict=True))


def certify_bounds(split_file: SplitFile, shaped: TypedGraph, *, seconds: float) -> SplitBounds | None:
    """Return the bound of each cut, whose labelling problem is solved again; of all cuts at once, by messages.

    Return None if cuts were made in groups or for seconds, or only some ops are cut. `seconds` limit all cuts together;
    if they are too short a bound is 0 or lower. Raise VerificationError if a division sends less than a claimed bound,
    SolverError if a solver's process fails.
    """
    at_once = len(split_file.cuts) == 1 < len(split_file.factors)
    in_groups = len(split_file.cuts) != len(split_file.factors) and not at_once
    if split_file.rules.partial or split_file.for_seconds or in_groups:
        return None
    groups = [split_file.factors] if at_once else [(k,) for k in split_file.factors]
    bounds = []
    for at, (more, cut) in enumerate(zip(groups, _claimed(split_file), strict=True)):
        program = build_program(shaped, _before(split_file, shaped, at), more, split_file.rules)
        limit = split_file.rules.before(split_file.factors[at + 1 :]).memory_bytes
        try:
            each_s = seconds / len(split_file.cuts)
            if limit is not None and not at_once:
                again = solve_limited_cut(shaped, program, limit, seconds=each_s).answer
            else:
                again = solve(program.problem, "trws" if at_once else "exact", seconds=each_s)
        except RuntimeError as error:
            raise SolverError.build(f"{error}", remedy="see pesto doctor, or check without the bound") from error
        wrong = again.value is not None and again.value < cut.bound_bytes
        if wrong or (cut.status == again.status == "optimal" and cut.bytes != again.value):
            raise VerificationError.build(
                f"the split is invalid: cut {at + 1} can be made to send {again.value} bytes, it "
                f"says {cut.bytes}, and at least {cut.bound_bytes}",
                where=split_file.what,
                remedy="split the step again",
            )
        bounds.append(again.bound)
    rests_on = _AT_ONCE if at_once else _ONE_BY_ONE
    return SplitBounds(claimed=_claimed(split_file), recomputed=tuple(bounds), rests_on=rests_on)


def _claimed(split_file: SplitFile) -> tuple[CutRecord, ...]:
    """Return the status and bytes claimed for each cut; for the last cut the split itself makes claims, too."""
    *before, last = split_file.cuts
    return (*before, msgspec.structs.replace(last, bound_bytes=max(last.bound_bytes, split_file.bound_bytes)))


def _before(split_file: SplitFile, shaped: TypedGraph, cuts: int) -> Division | None:
    """Return the division that the first cuts alone make."""
    if not cuts:
        return None
    first = replace(
        split_file, factors=split_file.factors[:cuts], ways=tuple(names[:cuts] for names in split_file.ways),
        layouts=tuple(at[:cuts] for at in split_file.layouts),
    )  # fmt: skip
    return division_of(first, shaped)


def unconfirmed_claims(split_file: SplitFile, bounds: SplitBounds | None) -> dict[str, Any]:
    """Return the claims of the file that nothing at hand confirms, by key."""
    claims = {
        "method": split_file.method,
        "notes": list(split_file.notes),
        "made": msgspec.to_builtins(split_file.made),
    }
    return claims if bounds is not None and bounds.confirmed else {"bound_bytes": split_file.bound_bytes, **claims}
