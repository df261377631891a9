"""What each run had at each moment: its trace as step functions of gap and primal gap."""

from dataclasses import dataclass

import numpy as np

from pesto.study.report import curves
from pesto.study.report.rows import Floats, Ints, Rows
from pesto.study.report.runs import Runs

_NOTHING = np.iinfo(np.int64).max
"""Stands for no schedule among makespans, where the least counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The steps of all runs that were posed and have finished, sorted by run and time.

    This is the form that `pesto.study.report.curves` takes.
    """

    run: Ints
    """Index into the cells of the `Runs`."""
    seconds: Floats
    gap: Floats
    """Primal-dual gap of the run from here on, by its own bound."""
    primal: Floats
    """Primal gap from here on, against the best makespan known for the instance."""
    primal_integral: Floats
    """Seconds; one entry a cell, NaN while it is pending or if it was refused. The horizon is the cell's limit."""


def progress_of(rows: Rows, runs: Runs) -> Progress:
    """Steps from the traces, from the start and from the final result, which has the last word.

    A streamed makespan better than what the run delivered does not count, nor a bound above its last one, nor
    anything past the limit. A run that delivers no schedule had a gap of 1 throughout; a proof of infeasibility
    leaves no gap. So a failure is as bad as can be, not absent.
    """
    run, seconds, makespan, bound = _events(rows, runs)
    order = np.lexsort((seconds, run))
    run, seconds = run[order], seconds[order]
    lowest = curves.lowest_so_far(run, makespan[order])
    highest = -curves.lowest_so_far(run, -bound[order])
    schedule = np.where(lowest == _NOTHING, np.nan, lowest)
    decided = runs.none_exists[run] & (order >= len(order) - int(runs.posed.sum()))
    primal = np.where(decided, 0.0, curves.primal_gap(schedule, runs.best_makespan[run]))
    area = curves.integral(run, seconds, primal, runs.limit)
    return Progress(
        run=run,
        seconds=seconds,
        gap=np.where(decided, 0.0, curves.gap(schedule, highest.astype(np.float64))),
        primal=primal,
        primal_integral=np.where(runs.posed, area, np.nan),
    )


def _events(rows: Rows, runs: Runs) -> tuple[Ints, Floats, Ints, Ints]:
    """Run, seconds, makespan and bound of every step that counts; the last ones are the runs' final results."""
    trace, delivered = rows.trace, np.where(np.isnan(runs.makespan), _NOTHING, _whole(runs.makespan))
    proven = _whole(runs.bound)
    run = np.minimum(np.searchsorted(runs.at, trace.cell), max(len(runs.at) - 1, 0))
    counts = (runs.at[run] == trace.cell) & runs.posed[run] & (trace.seconds <= runs.limit[run])
    run = run[counts]
    streamed = np.where(trace.makespan < 0, _NOTHING, trace.makespan)[counts]
    begun = np.flatnonzero(runs.posed & ~np.isnan(runs.start))
    ended = np.flatnonzero(runs.posed)
    return (
        np.concatenate([run, begun, ended]),
        np.concatenate([trace.seconds[counts], np.zeros(len(begun)), np.minimum(runs.seconds, runs.limit)[ended]]),
        np.concatenate(
            [np.maximum(streamed, delivered[run]), np.maximum(_whole(runs.start), delivered)[begun], delivered[ended]]
        ),
        np.concatenate([np.minimum(trace.bound[counts], proven[run]), np.zeros_like(begun), proven[ended]]),
    )


def _whole(values: Floats) -> Ints:
    return np.nan_to_num(values, nan=0.0).astype(np.int64)
