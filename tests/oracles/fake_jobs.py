"""An executor of jobs without processes: what a job does is its label, and time passes only where a test says so.

"" ends at once with a plan; `wait` runs until it is interrupted, and leaves a plan then; `die` loses its worker each
time; `lost N` loses the cluster that it runs on N times; `big` needed too much memory; `wrong` is refused by its verb;
`talk N` tells N incumbents first;
`deaf` is `wait`, and minds SIGKILL alone; `unbegun` waits for a process, which a cancel ends;
`broken` ends with a bug in a worker that was used before;
`once` is `wait`, with a plan of its first attempt alone, and `once die` loses its
worker in later ones.
"""

import signal
import threading
from collections import deque
from pathlib import Path

import msgspec

from pesto.core.executing.executor import ProgressMessage, WorkFailure, WorkResult
from pesto.verbs.jobs.job_events import Done, IncumbentEvent, Stage, encode
from pesto.verbs.jobs.request import Order


def _attempt(key):
    return int(key.rpartition(".")[2])


class FakeJobs:
    def __init__(self, slots=1, files=None, result=None):
        """`files`: bytes of each file that a job leaves, by name; by default a plan and a report that name the attempt.

        `result`: the summary of each job.
        """
        self.slots, self._files, self._result, self.begun, self.closed = slots, files, result or {}, {}, False
        self.signals = []
        self._heard, self._poked = deque(), False
        self._changed = threading.Condition()

    def begin(self, work):
        self.begun[work.key] = work
        words = msgspec.json.decode(work.data, type=Order).request.label.split() or [""]
        told = [Stage(name="solve")]
        if words[0] == "talk":
            found = [1.0 - k * 1e-6 for k in range(int(words[1]))]
            told += [
                IncumbentEvent(best_s=best, bound_s=0.5, gap=1 - 0.5 / best, by="list", seconds=0.0) for best in found
            ]
        self._hear(*(ProgressMessage(key=work.key, data=encode(event)) for event in told))
        if words[0] == "die":
            self._hear(WorkFailure(key=work.key, why="death", detail="killed by SIGKILL", seconds=1.0))
        elif words[0] == "lost" and _attempt(work.key) <= int(words[1]):
            self._hear(WorkFailure(key=work.key, why="place", detail="the cluster was lost", seconds=1.0))
        elif words[0] == "big":
            self._hear(WorkFailure(key=work.key, why="memory", detail="needed more than 8 GiB", seconds=1.0))
        elif words[0] == "wrong":
            self._answer(work, Done(exit_code=3, error="a cycle", remedy="break it"))
        elif words[0] == "broken":
            used = words[1:] != ["once"] or _attempt(work.key) == 1
            self._answer(work, Done(exit_code=1 if used else 0, error="bug: half loaded" if used else None), used)
        elif words == ["once", "die"] and _attempt(work.key) > 1:
            self._hear(WorkFailure(key=work.key, why="death", detail="killed by SIGKILL", seconds=1.0))
        elif words[0] not in ("wait", "deaf", "unbegun", "once"):
            self.end(work.key)

    def end(self, key, code=0):
        """A running job ends with a plan."""
        work = self.begun[key]
        out = Path(msgspec.json.decode(work.data, type=Order).out)
        if not out.is_dir():  # another server has the job, and has made room
            self._answer(work, Done(exit_code=8, error="no folder", remedy="none"))
            return
        files = self._files or dict.fromkeys(("plan.json", "report.html"), key.encode())
        for name, data in files.items():
            (out / name).write_bytes(data)
        self._answer(work, Done(exit_code=code, files=tuple(files), result=self._result))

    def folders(self):
        """Those of the attempts that were begun."""
        return [Path(msgspec.json.decode(work.data, type=Order).out) for work in self.begun.values()]

    def collect(self, seconds=None):
        with self._changed:
            self._changed.wait_for(lambda: self._heard or self._poked, seconds)
            found, self._poked = list(self._heard), False
            self._heard.clear()
            return found

    def cancel(self, key, signum=signal.SIGINT):
        work = self.begun[key]
        self.signals.append((key, signum))
        if msgspec.json.decode(work.data, type=Order).request.label == "unbegun":
            self._hear(WorkFailure(key=work.key, why="place", detail="cancelled before it began", seconds=0.0))
        elif signum == signal.SIGKILL:
            self._hear(WorkFailure(key=work.key, why="death", detail="cancelled", seconds=1.0))
        elif msgspec.json.decode(work.data, type=Order).request.label == "deaf":
            return
        elif msgspec.json.decode(work.data, type=Order).request.label.startswith("once") and _attempt(key) > 1:
            self._answer(work, Done(exit_code=130, error="interrupted; nothing was written"))
        else:
            self.end(key, 130)

    def poke(self):
        with self._changed:
            self._poked = True
            self._changed.notify_all()

    def close(self):
        self.closed = True

    def _answer(self, work, done, reused=False):
        self._hear(WorkResult(key=work.key, data=msgspec.json.encode(done), seconds=1.0, reused=reused))

    def _hear(self, *items):
        with self._changed:
            self._heard.extend(items)
            self._changed.notify_all()
