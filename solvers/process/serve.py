"""The solver's side of the wire: read one request from stdin, solve it, stream what is found to stdout."""

import os
import sys
import threading
import time
from dataclasses import replace
from typing import BinaryIO

from solvers.base import Compiling, Progress, SolverEntry, UnavailableError
from solvers.files.npz import pack_schedule, unpack_problem, unpack_schedule
from solvers.problem import Problem
from solvers.process import wire
from solvers.result import Limit, Options, Status
from solvers.schedule import Schedule


def serve() -> None:
    """Answer one request; an exception of the solver ends the process with its traceback on stderr."""
    # The real stdout, which from now on only frames reach: prints, of native code too, go to stderr.
    private = os.dup(1)
    os.dup2(2, 1)
    out = os.fdopen(private, "wb")
    entry, problem, options, begun = _request(sys.stdin.buffer)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    writing = threading.Lock()

    def send(message: wire.Message, schedule: Schedule | None = None) -> None:
        with writing:
            out.write(wire.encode(message, b"" if schedule is None else pack_schedule(schedule)))
            out.flush()

    def report(progress: Progress) -> None:
        news = wire.ImprovedFrame(
            lower_bound=progress.lower_bound, seconds=progress.seconds, bound_by=progress.bound_by, log=progress.log
        )
        send(news, progress.schedule)

    try:
        solver = entry.load()
        spent = time.monotonic() - begun
        send(wire.LoadedFrame())
        if isinstance(solver, Compiling):
            solver.compile_ahead()
        send(wire.ReadyFrame())
        if not options.deterministic:  # whose seconds are a measure of work
            options = replace(options, seconds=max(0.0, options.seconds - spent))
        result = solver.solve(problem, options, report)
    except (ImportError, UnavailableError) as error:
        missing = wire.EndedFrame(
            status=Status.MISSING, limit=Limit.OTHER, lower_bound=0, seconds=0.0, version="", detail=str(error)
        )
        send(missing)
    else:
        claimed = wire.EndedFrame(
            status=result.status,
            limit=result.limit,
            lower_bound=result.lower_bound,
            seconds=result.seconds,
            version=result.version,
            detail=result.detail,
            bound_by=result.bound_by,
        )
        send(claimed, result.schedule)


def _request(stream: BinaryIO) -> tuple[SolverEntry, Problem, Options, float]:
    """Return the solver, what it is given, and when its limit began."""
    request, body = wire.read(stream)
    if not isinstance(request, wire.RequestFrame):
        raise TypeError(f"a request expected, found {type(request).__name__}")
    options = Options(
        seconds=request.seconds,
        gap=request.gap,
        seed=request.seed,
        workers=request.workers,
        deterministic=request.deterministic,
        lower_bound=request.lower_bound,
        formulation=request.formulation,
        start=unpack_schedule(wire.read(stream)[1]) if request.start else None,
    )
    entry = SolverEntry(module=request.module, attribute=request.attribute, arguments=request.arguments, isolated=True)
    return entry, unpack_problem(body), options, request.begun
