# ruff: noqa: ARG002 - the arguments are those of a solver
"""Solvers that fail in every way that a solver can; each class is one way. Run only in a process of their own."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from solvers.base import Progress
from solvers.result import Limit, Result, Status
from solvers.schedule import Schedule

FOREVER_S = 3600


def serial(problem, device=None):
    """Everything one after the other, on each task's first device, transfers included; valid without memory limits."""
    tasks = np.arange(problem.tasks)
    device = problem.allowed.argmax(axis=1) if device is None else device
    assert len(set(problem.location[device])) == 1
    ticks = problem.duration[tasks, device]
    finish = np.cumsum(ticks)
    none = np.zeros(0, dtype=np.int64)
    times = {"device": device, "start": finish - ticks, "finish": finish}
    return Schedule(**times, sent_payload=none, sent_to=none, sent_start=none, sent_finish=none)


def overlapping(problem):
    """Everything at time 0 on one device."""
    good = serial(problem)
    return Schedule(
        device=good.device, start=good.start * 0, finish=good.finish - good.start, sent_payload=good.sent_payload,
        sent_to=good.sent_to, sent_start=good.sent_start, sent_finish=good.sent_finish,
    )  # fmt: skip


def delayed(schedule, ticks):
    """The same, so many ticks later."""
    return replace(schedule, start=schedule.start + ticks, finish=schedule.finish + ticks)


def claim(status, schedule, lower_bound=0):
    """A result, unvalidated, so that it can contradict itself."""
    result = object.__new__(Result)
    values = {
        "status": status, "limit": Limit.NONE, "schedule": schedule, "lower_bound": lower_bound, "seconds": 0.0,
        "solver": "stub", "version": "1", "detail": "", "bound_by": "",
    }  # fmt: skip
    for name, value in values.items():
        object.__setattr__(result, name, value)
    return result


class Honest:
    """Reports one schedule and returns it."""

    def solve(self, problem, options, report):
        found = serial(problem)
        report(Progress(schedule=found, lower_bound=1, seconds=0.0))
        return claim(Status.FEASIBLE, found, 1)


class Floods:
    """Reports a schedule, two better ones while it is being heard, then more than a pipe holds.

    Files in the folder that TOLD names say that the first is "heard", and that the others are "queued".
    """

    def solve(self, problem, options, report):
        best, folder = serial(problem), Path(os.environ["TOLD"])
        report(Progress(schedule=delayed(best, 2), lower_bound=1, seconds=0.0))
        while not (folder / "heard").exists():
            time.sleep(0.01)
        for late in (1, 0):
            report(Progress(schedule=delayed(best, late), lower_bound=1, seconds=0.0))
        (folder / "queued").touch()
        for _ in range(5000):
            report(Progress(schedule=None, lower_bound=1, seconds=0.0))
        return claim(Status.FEASIBLE, best, 1)


class Failing:
    """Reports a valid schedule and a bound of 2, then fails."""

    def solve(self, problem, options, report):
        report(Progress(schedule=serial(problem), lower_bound=2, seconds=0.0))
        return self.fail(problem, report)


class Segfaults(Failing):
    def fail(self, problem, report):
        import ctypes

        print("about to fall", file=sys.stderr, flush=True)
        ctypes.string_at(0)


class Aborts(Failing):
    def fail(self, problem, report):
        os.abort()


class Killed(Failing):
    """As by the kernel when memory runs out."""

    def fail(self, problem, report):
        os.kill(os.getpid(), signal.SIGKILL)


class Raises(Failing):
    def fail(self, problem, report):
        raise ZeroDivisionError("the vendor's bug")


class Struck(Failing):
    """Interrupted within compiled code, which raises an error of its own in the interruption's place."""

    def fail(self, problem, report):
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()


class EatsMemory(Failing):
    def fail(self, problem, report):
        return bytearray(1 << 45)


class ExitsSilently(Failing):
    def fail(self, problem, report):
        os._exit(0)


class Compiles(Honest):
    """Cannot solve before it has compiled."""

    compiled = False

    def compile_ahead(self):
        self.compiled = True

    def solve(self, problem, options, report):
        if not self.compiled:
            raise RuntimeError("not compiled")
        return super().solve(problem, options, report)


class TellsSeconds:
    """Says in its detail how many whole seconds it was given."""

    def solve(self, problem, options, report):
        result = claim(Status.FEASIBLE, serial(problem), 1)
        object.__setattr__(result, "detail", f"{options.seconds:.0f}")
        return result


class LoadsForever:
    """Never gets as far as to solve, and ends by SIGKILL alone."""

    def __init__(self):
        Path(os.environ["TOLD"], "loads").touch()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(FOREVER_S)


class CompilesForever(Honest):
    """Is loaded, and does not get further."""

    def compile_ahead(self):
        Path(os.environ["TOLD"], "loads").touch()
        time.sleep(FOREVER_S)


class Hangs(Failing):
    def fail(self, problem, report):
        time.sleep(FOREVER_S)


class IgnoresTerm(Failing):
    def fail(self, problem, report):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            time.sleep(1)


class ForksAndHangs(Failing):
    """Leaves children, one of them in a session of its own, their ids in the file that PIDS names; then hangs."""

    def fail(self, problem, report):
        sleeper = [
            sys.executable,
            "-c",
            f"import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep({FOREVER_S})",
        ]
        pids = [subprocess.Popen(sleeper, start_new_session=own).pid for own in (False, True)]
        new = Path(os.environ["PIDS"] + ".new")
        new.write_text(" ".join(map(str, [os.getpid(), os.getppid(), *pids])))
        new.rename(os.environ["PIDS"])
        return self.then(problem)

    def then(self, problem):
        time.sleep(FOREVER_S)


class ForksAndAnswers(ForksAndHangs):
    def then(self, problem):
        return claim(Status.FEASIBLE, serial(problem), 2)


class ForksAndCrashes(ForksAndHangs):
    def then(self, problem):
        os.abort()


class Prints(Failing):
    """Writes to stdout from Python, from the file descriptor and from a child."""

    def fail(self, problem, report):
        print("PSV1 noise")
        os.write(1, b"\x00" * 100)
        subprocess.run(["echo", "noise"], check=True)
        return claim(Status.FEASIBLE, serial(problem), 2)


class WritesGarbage(Failing):
    """Finds the descriptor of the frames and writes to it."""

    def fail(self, problem, report):
        for fd in range(3, 30):
            try:
                os.write(fd, b"garbage" * 10)
            except OSError:
                continue
        time.sleep(FOREVER_S)


class Overlaps(Failing):
    def fail(self, problem, report):
        return claim(Status.FEASIBLE, overlapping(problem))


class StreamsOverlap(Failing):
    """Streams an invalid schedule and would go on for ever."""

    def fail(self, problem, report):
        report(Progress(schedule=overlapping(problem), lower_bound=0, seconds=0.0))
        time.sleep(FOREVER_S)


class BoundTooHigh(Failing):
    def fail(self, problem, report):
        found = serial(problem)
        return claim(Status.FEASIBLE, found, found.makespan + 1)


class StreamsBoundTooHigh(Failing):
    def fail(self, problem, report):
        report(Progress(schedule=None, lower_bound=10**9, seconds=0.0))
        time.sleep(FOREVER_S)


class FalselyInfeasible:
    def solve(self, problem, options, report):
        return claim(Status.INFEASIBLE, None)


class FalselyOptimal(Failing):
    """Claims a schedule to be optimal that its bound does not prove."""

    def fail(self, problem, report):
        return claim(Status.OPTIMAL, serial(problem), 1)


class WorseThanStart:
    """Proves the optimality of a schedule that is worse than the one it was given."""

    def solve(self, problem, options, report):
        found = serial(problem)
        return claim(Status.OPTIMAL, found, found.makespan)


class AnswersNothing(Failing):
    """Says that it has a schedule, and has none."""

    def fail(self, problem, report):
        return claim(Status.FEASIBLE, None)


class MissingPackage:
    def __init__(self):
        import no_such_vendor  # noqa: F401


class GivesUp:
    def solve(self, problem, options, report):
        return claim(Status.UNKNOWN, None)
