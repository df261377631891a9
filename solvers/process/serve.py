"""The solver's side of the wire: read one request from stdin, solve it, stream what is found to stdout."""

import os
import sys
import threading
import time
from dataclasses import replace

from solvers.base import Compiling, Progress, UnavailableError
from solvers.files.npz import pack_schedule
from solvers.process import wire
from solvers.result import Limit, Result, Status
from solvers.schedule import Schedule


def serve() -> None:
    """Answer one request; an exception of the solver ends the process with its traceback on stderr."""
    # The real stdout, which from now on only frames reach: prints, of native code too, go to stderr.
    private = os.dup(1)
    os.dup2(2, 1)
    out = os.fdopen(private, "wb")
    entry, problem, options, begun = wire.read_request(sys.stdin.buffer)
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
        result = Result(
            status=Status.MISSING, limit=Limit.OTHER, schedule=None, lower_bound=0, seconds=0.0, solver="", version="",
            detail=str(error),
        )  # fmt: skip
    claims = {name: getattr(result, name) for name in wire.EndedFrame.__struct_fields__}
    send(wire.EndedFrame(**claims), result.schedule)
