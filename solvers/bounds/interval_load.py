"""Load test of the interval between two anchors: do the tasks fit some ticks? Compiled; linear in the tasks.

Each task x between i and j is *here* (where i is; where both are, when they share a location), *there* (where j is; at
any other location, when they share one) or at a third location, as far as its distances from i and to j leave it time.
A set S of tasks has no room within D ticks when

    work(S)  >  y1 l_1 + min(y1, Y - y1) l_2 + ...          (ALL)

with Y the sum of the weights of the devices, y1 the most at one location, and l the lengths, longest first, of the
spans in which the devices here, there and elsewhere can work on S: from the least head of what of S can be at each, to
its least tail. Or, when the work of what of S can only be here (HERE), or only there (THERE), exceeds y1 times its
span. Or when some task can be nowhere (NONE). A shorter D only shrinks the options and the spans, and is refuted, too.

The sets tried are those of a least head and a least tail, on a grid.
"""

from typing import NamedTuple

from solvers.arrays import Ints
from solvers.bounds.distances import NEVER
from solvers.bounds.evidence import ALL, HERE, NONE, THERE
from solvers.compiled.kernels import spliced, subkernel

LONGEST = 2**45
"""Ticks at which no distance is raised any more, so that weighted sums stay exact."""
GRID = 16
NEAR_HEAD, FAR_HEAD, NEAR_TAIL, FAR_TAIL, TOOK, WORK, THIRD, ROW, COLUMN = range(9)
"""Rows of `IntervalLoads.tasks`: ticks from i and to j; whether a third location is possible; the cell of the grid."""
_WORK, _CELLS = 3, 13
"""Rows of cells: the first three hold work (of all tasks, of those only here, only there), the others five spans."""


class IntervalLoads(NamedTuple):
    """The tasks between two anchors."""

    tasks: Ints
    """[9, x] what is known of each task between, in ticks; NEAR_HEAD to COLUMN name the rows."""
    size: int
    """How many columns are in use."""
    cells: Ints
    """[_CELLS, GRID, GRID] works and spans, in ticks, of the tasks in each cell of the grid: room to compute in."""
    far: bool
    """True if the anchors are at two locations."""
    total: int
    """Y, the sum of the weights of all devices."""
    most: int
    """Y₁, the sum of the weights at the one location where it is greatest."""


@spliced
def least(loads: IntervalLoads, low: int, fine: int) -> tuple[int, int]:
    """Return a distance, from `low`, such that one tick less is refuted, and by what, as `refuted` does.

    It is raised by at least 2^-fine of `low`, and found as exactly, by steps that double, then by halves.
    """
    # A raise of less than 2^-fine is not worth a claim. Steps double from below, so that a pair that gains nothing
    # ends after one test.
    step = max(1, low >> fine)
    close, high, why = step, NEVER, 0
    while low + step < LONGEST and (high == NEVER or high - low >= close):
        ticks = low + step - 1 if high == NEVER else (low + high) // 2
        found = refuted(loads, ticks)
        if found > 0:
            low, why, step = ticks + 1, found, 2 * step
        else:
            high, step = ticks, 0
        if why == 0:
            break
    return low, why


@spliced
def refuted(loads: IntervalLoads, ticks: int) -> int:
    """Find tasks without room: return 0 for none, else 1 + the kind * GRID^2 + the cell of the least head and tail."""
    for k in range(_CELLS):
        loads.cells[k, :, :] = 0 if k < _WORK else NEVER
    if not _tally(loads.tasks, loads.size, loads.cells, loads.far, ticks):
        return 1 + NONE * GRID * GRID
    # Sums over all cells of at least a head and a tail: each of the GRID^2 sets of tasks then costs one look.
    c = loads.cells
    for k in range(_CELLS):
        for u in range(GRID - 1, -1, -1):
            for v in range(GRID - 2, -1, -1):
                c[k, u, v] = _both(k, c[k, u, v], c[k, u, v + 1])
        for u in range(GRID - 2, -1, -1):
            for v in range(GRID):
                c[k, u, v] = _both(k, c[k, u, v], c[k, u + 1, v])
    for u in range(GRID):
        for v in range(GRID):
            # Cells are gathered: without work here there is none in the rest of the row either.
            if c[0, u, v] == 0:
                break
            here, there, third = (
                _length(c, 0, (u, v), ticks),
                _length(c, 1, (u, v), ticks),
                _length(c, 2, (u, v), ticks),
            )
            cell = 1 + u * GRID + v
            if c[0, u, v] > _capacity(loads, here, there, third):
                return cell + ALL * GRID * GRID
            if c[1, u, v] > loads.most * _length(c, 3, (u, v), ticks):
                return cell + HERE * GRID * GRID
            if c[2, u, v] > loads.most * _length(c, 4, (u, v), ticks):
                return cell + THERE * GRID * GRID
    return 0


@spliced
def _tally(t: Ints, size: int, cells: Ints, far: bool, ticks: int) -> bool:
    """Add each task to its cell; return False when one can be nowhere."""
    near_tail, far_tail = (FAR_TAIL, NEAR_TAIL) if far else (NEAR_TAIL, FAR_TAIL)
    for x in range(size):
        u, v, work = t[ROW, x], t[COLUMN, x], t[WORK, x]
        early, late, near, away = t[NEAR_HEAD, x], t[FAR_HEAD, x], t[near_tail, x], t[far_tail, x]
        here, there = early + t[TOOK, x] + near <= ticks, late + t[TOOK, x] + away <= ticks
        third = far and t[THIRD, x] > 0 and late + t[TOOK, x] + t[FAR_TAIL, x] <= ticks
        # One task without time at any location refutes the distance by itself; no set has to be looked at.
        if not (here or there or third):
            return False
        cells[0, u, v] += work
        if here:
            _span(cells[_WORK:], u, v, early, near)
            # Work that has time at this location alone must share its devices: a stronger test than that of all
            # devices.
            if not there and not third:
                cells[1, u, v] += work
                _span(cells[_WORK + 6 :], u, v, early, near)
        if there:
            _span(cells[_WORK + 2 :], u, v, late, away)
            if far and not here and not third:
                cells[2, u, v] += work
                _span(cells[_WORK + 8 :], u, v, late, away)
        if third:
            _span(cells[_WORK + 4 :], u, v, late, t[FAR_TAIL, x])
    return True


@subkernel
def _span(rows: Ints, u: int, v: int, head: int, tail: int) -> None:
    rows[0, u, v] = min(rows[0, u, v], head)
    rows[1, u, v] = min(rows[1, u, v], tail)


@subkernel
def _both(k: int, one: int, two: int) -> int:
    return one + two if k < _WORK else min(one, two)


@subkernel
def _length(cells: Ints, which: int, at: tuple[int, int], ticks: int) -> int:
    u, v = at
    row = _WORK + 2 * which
    return max(0, ticks - cells[row, u, v] - cells[row + 1, u, v])


@spliced
def _capacity(loads: IntervalLoads, here: int, there: int, third: int) -> int:
    """Return the most weighted ticks of all devices in their spans."""
    y, y1 = loads.total, loads.most
    if not loads.far:
        # Any devices but those of one location are elsewhere, or all of them.
        return y1 * here + (y - y1) * there if here > there else y * there
    # The locations with the longest spans get the greatest weight: this is the most that any placement could do, so
    # a load above it is a proof.
    first, second = max(here, there), min(here, there)
    if third > second:
        first, second = max(first, third), third
    return y1 * first + min(y1, y - y1) * second + max(0, y - 2 * y1) * third
