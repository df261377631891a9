"""Scheduler thread: starts queued jobs on free workers, stores their events, and records their results."""

import logging
import os
import shutil
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import msgspec

from pesto.core.errors import Exit, FileError, describe_error
from pesto.core.executing.executor import (
    Backoff,
    Executor,
    ProgressMessage,
    WorkEvent,
    WorkFailure,
    WorkFiles,
    WorkItem,
    WorkLimits,
    WorkResult,
)
from pesto.core.files.disk import make_folder, sync_folder
from pesto.reporting.show.screen import one_line
from pesto.service.protocol import State
from pesto.service.serve.blobs import STALE_S, Retention
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.store.database import UncertainError
from pesto.service.serve.store.job_records import Attempt, Event, Outcome
from pesto.service.serve.store.ledger import BLOBS, JOBS, Ledger
from pesto.service.serve.store.opening import Act, Writer
from pesto.service.serve.telemetry import JOB_S, Histogram
from pesto.service.serve.tokens import Departure, TokenAuthenticator
from pesto.verbs.jobs.incumbent_file import INCUMBENTS, left_summary
from pesto.verbs.jobs.job_events import Done
from pesto.verbs.jobs.request import ENTRY, JobRequest, Order, blobs_of, kept_request

T = TypeVar("T")
UNWRITTEN = "the database cannot be written to"
AGAIN_S = 1.0
"""Seconds between two tries to write."""


class PendingWrites:
    """Pending writes of one thread, done in order; kept while the disk is full or the database away."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._writes = writer, deque[tuple[Act, Callable[[Any], None]]]()
        self._failed = -AGAIN_S
        self.trouble = ""
        """Why jobs wait, for everybody; empty while everything can be written."""

    def add(self, act: Callable[..., T], then: Callable[[T], None] = lambda _: None) -> None:
        """Queue one more act; `then` is called with its value."""
        self._writes.append((act, then))

    def work(self) -> bool:
        """Do all acts, unless one failed a moment ago; return True if all are done."""
        if time.monotonic() < self._failed + AGAIN_S:
            return False
        try:
            self.finish()
        except FileError as error:
            if self._failed < 0:
                _LOG.warning("%s; jobs wait until it can be written", error)
            self._failed, self.trouble = time.monotonic(), UNWRITTEN
            return False
        self._failed, self.trouble = -AGAIN_S, ""
        return True

    def finish(self) -> None:
        """Do all acts. FileError where one cannot be done now; it stays queued with those behind it."""
        while self._writes:
            act, then = self._writes[0]
            try:
                value = self._writer.do(act)
            except UncertainError as lost:
                self._writes[0] = lost.again(act), then
                raise
            self._writes.popleft()
            then(value)


class FolderProbe:
    """Tests whether folders for jobs can be made: on a full or read-only disk jobs wait, and none fails."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of all jobs."""
        self._folder, self._backoff = folder, Backoff()
        self.trouble = ""
        """Why no folder can be made, without its name, for everybody; empty while one can."""

    def may_begin(self) -> bool:
        """Return True if folders can be made, as far as is known; after a failure one is tried now and then."""
        return not self.trouble or (not self._backoff.left_s and self.succeeds())

    def succeeds(self) -> bool:
        """Return True if a folder like a job's can be made now."""
        probe = self._folder / f".probe-{os.urandom(8).hex()}"
        try:
            make_folder(probe / "1")
        except FileError as error:
            if not self.trouble:
                _LOG.error("%s; jobs wait until folders can be made", error)
            reason = getattr(error.__cause__, "strerror", None) or "the disk refuses it"
            self.trouble = f"no folder for a job can be made: {reason.lower()}"
            self._backoff.failed()
            return False
        finally:
            shutil.rmtree(probe, ignore_errors=True)
        if self.trouble:
            _LOG.warning("folders for jobs can be made again")
        self.trouble = ""
        self._backoff.worked()
        return True


_LOG = logging.getLogger(__name__)
_COLLECT_S = 1.0
JOB_PATIENCE_S = 600.0
"""Seconds that an interrupted job may take to end, before it is killed."""
PATIENCE_S = 6.0
"""Seconds for which interrupted jobs may save their best plans when the service ends."""
SWEEP_S = 600.0
"""Seconds between two looks at what is to be removed."""
SPENT_S = 5.0
"""Seconds between two looks at whether tokens of running jobs have had their hours."""
ESCALATE_S = 50.0
"""Seconds after which a job that was interrupted and has not ended is sent SIGTERM; a second cancel does so at once."""
KILL_S = 3.0
"""Seconds from that SIGTERM to SIGKILL, for which Ray takes 5 more: a second cancel ends a job within 10 s."""
MOST_LOGGED = 10_000
"""Lines that one attempt may log; what it finds is kept beyond."""
_FOREIGN = Outcome(
    exit_code=Exit.USAGE, error="its request is of another version of the service", remedy="submit it again here"
)
"""Outcome of a job whose request this version cannot read."""


class _Cancel(NamedTuple):
    job: str
    attempt: int | None
    """None for whichever runs."""
    again: bool
    """True to end one that was interrupted before."""


class _Stop:
    """Times of the next signals to an interrupted attempt, in seconds of `time.monotonic`."""

    def __init__(self) -> None:
        self.terminate_s = time.monotonic() + ESCALATE_S
        self.kill_s = self.terminate_s + KILL_S
        self.signals = deque((signal.SIGTERM, signal.SIGKILL))
        """Signals still to be sent."""

    def hurry(self) -> None:
        """Send SIGTERM now, unless it was sent already."""
        if len(self.signals) == 2:
            self.terminate_s = time.monotonic()
            self.kill_s = self.terminate_s + KILL_S

    def next_signal(self) -> signal.Signals | None:
        """Return the signal to be sent now, each once; None for none."""
        if not self.signals:
            return None
        when = self.terminate_s if self.signals[0] == signal.SIGTERM else self.kill_s
        return self.signals.popleft() if time.monotonic() >= when else None


class Scheduler:
    """Begins jobs by priority, then number, as far as workers and quotas allow; keeps what comes of them."""

    def __init__(
        self, writer: Writer, executor: Executor, folder: Path, authenticator: TokenAuthenticator, config: ServeConfig
    ) -> None:
        """`folder`: of the service; each job has a folder there, with one in it for each attempt."""
        self._writer, self._executor, self._authenticator = writer, executor, authenticator
        self.bounds = config.bounds
        """Limits of any job; the machine's memory is measured once."""
        self._pending = PendingWrites(writer)
        self._folder, self._blobs = folder / JOBS, folder / BLOBS
        self._retention = Retention(folder, config.keep_days, int(config.keep_gib * 2**30), config.keep)
        self._alone = not config.database
        self._swept = time.monotonic()
        self.waited, self.ran = Histogram(JOB_S), Histogram(JOB_S)
        """Seconds that jobs waited for their first worker, and that workers were at attempts, since the start."""
        self._probe, self._unbegun = FolderProbe(self._folder), ""
        self._running: dict[str, Attempt] = {}
        self._interrupted: dict[str, _Stop] = {}
        self._over: set[str] = set()
        self._spent: set[str] = set()
        self._measured = -SPENT_S
        self._departed: set[Departure] = set()
        self._logged: Counter[str] = Counter()
        self._woken = False
        self._cancels: SimpleQueue[_Cancel] = SimpleQueue()
        self._ending = threading.Event()
        self.fault: BaseException | None = None
        """The exception that ended the scheduler, if any."""
        self._thread = threading.Thread(target=self._schedule, name="scheduler")

    @property
    def slots(self) -> int:
        """Maximum number of jobs at a time."""
        return self._executor.slots

    @property
    def alive(self) -> bool:
        """True while the thread schedules."""
        return self._thread.is_alive() and not self._ending.is_set()

    @property
    def trouble(self) -> str:
        """Why no job can be begun, or what jobs tell cannot be kept, for everybody; empty where both can."""
        return self._probe.trouble or self._pending.trouble or self._unbegun

    def start(self) -> None:
        """Start the thread."""
        make_folder(self._folder)
        with _logged_failures("what is to be removed stays"):
            self._retention.tidy(self._writer.do, 0.0 if self._alone else STALE_S)
            self._retention.name_others(self._writer.do)
            self._retention.sweep(self._writer.do)
        self._thread.start()

    def wake(self) -> None:
        """Wake the scheduler, as there is a job to begin; from any thread."""
        if not self._woken:  # a poke is a call of the system, and one is enough until it is heard
            self._woken = True
            self._executor.poke()

    def cancel(self, name: str, attempt: int | None = None, *, again: bool = True) -> None:
        """Interrupt the worker that is at a job, by its id, or at this attempt of it.

        The worker is ended if that takes ESCALATE_S, and where it was interrupted before and this is `again`.
        """
        self._cancels.put(_Cancel(name, attempt, again))
        self._executor.poke()

    def running(self) -> list[Attempt]:
        """Return the attempts that were begun here and of which something is still to be written; from any thread."""
        return list(self._running.values())

    def end(self) -> None:
        """Interrupt all jobs, keep their best plans, queue them again, and end every worker."""
        self._ending.set()
        self._executor.poke()
        self._thread.join()

    def remove_files(self) -> None:
        """Remove the files of deleted jobs; from any thread but the event loop's."""
        self._retention.remove_listed(self._writer.do)

    def results(self, name: str, attempt: int) -> Path:
        """Return the folder of what an attempt wrote, by the job's id."""
        return self._folder / name / str(attempt)

    def _schedule(self) -> None:
        try:
            while not self._ending.is_set():
                self._begin()
                self._settle_departures()
                self._stop_spent()
                # Interrupt what is to be cancelled; what is not running any more has ended since.
                while not self._cancels.empty():
                    cancel = self._cancels.get()
                    for key, begun in self._running.items():
                        if begun.id == cancel.job and cancel.attempt in (None, begun.attempt):
                            self._stop(key, again=cancel.again)
                for key, stop in self._interrupted.items():
                    if key not in self._over and (signum := stop.next_signal()) is not None:
                        self._executor.cancel(key, signum)
                if time.monotonic() >= self._swept + SWEEP_S:
                    self._swept = time.monotonic()
                    with _logged_failures("what is too old stays for now"):
                        self._retention.tidy(self._writer.do, STALE_S)
                        self._retention.sweep(self._writer.do)
                self._take(self._executor.collect(_COLLECT_S))
            for key in self._running:
                self._stop(key)
            until = time.monotonic() + PATIENCE_S
            while self._running and time.monotonic() < until:
                self._take(self._executor.collect(max(0.0, min(_COLLECT_S, until - time.monotonic()))))
            for key, begun in self._running.items():
                if key not in self._over:
                    self._release(begun, seconds=0.0, rescued=self._rescued(begun, 0.0))
            try:
                self._pending.finish()
            except FileError as error:  # what is not written counts as lost in a crash: it is queued again
                self.fault = error
            self._authenticator.save_uses(now=True)
        except BaseException as fault:
            _LOG.exception("jobs cannot be run any more; the service ends")
            self.fault = fault
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            self._executor.close()

    def _settle_departures(self) -> None:
        """Cancel or give away the jobs of removed tokens, and write when tokens were used."""

        def settle(ledger: Ledger, left: Departure) -> list[str]:
            if not left.to:
                return ledger.cancel_all(left.name, left.until)
            ledger.give_all(left.name, left.to, left.until)
            return []

        def cancel_each(names: list[str]) -> None:
            for name in names:
                self._cancels.put(_Cancel(name, None, again=False))

        self._authenticator.refresh()
        self._authenticator.save_uses()
        for departure in self._authenticator.departures:
            if departure not in self._departed:
                self._departed.add(departure)
                self._pending.add(partial(settle, left=departure), cancel_each)
        self._pending.work()

    def _begin(self) -> None:
        self._woken = False
        while (
            len(self._running) < self._executor.slots
            and not self._ending.is_set()
            and (self._pending.work() and self._probe.may_begin())
        ):
            try:
                begun = self._writer.do(lambda ledger: ledger.begin(self._authenticator.quota))
            except FileError as error:  # where it was begun nonetheless, nobody renews its lease
                if not self._unbegun:
                    _LOG.warning("%s; jobs wait until one can be begun", error)
                self._unbegun = UNWRITTEN
                return
            self._unbegun = ""
            if begun is None:
                return
            if begun.attempt == 1:
                self.waited.add(begun.waited_s)
            out = self.results(begun.id, begun.attempt)
            request = kept_request(begun.request)
            self._running[begun.key] = begun
            self._clear(begun, begun.kept)
            if request is None:
                self._fail(begun, _FOREIGN)
                continue
            try:
                make_folder(out)
            except FileError as error:
                # Queue the job again where no folder can be made; fail it where others can.
                if not self._probe.succeeds():
                    self._release(begun, seconds=0.0, why=str(error))
                    continue
                report = describe_error(error, None)
                where, remedy = report.where or None, report.remedy or None
                self._fail(begun, Outcome(exit_code=report.exit_code, error=report.error, where=where, remedy=remedy))
            else:
                self._executor.begin(self._work_item(begun, request, out))

    def _work_item(self, begun: Attempt, request: JobRequest, out: Path) -> WorkItem:
        """Return an attempt as work for the executor; limits that the request leaves open are the service's."""
        limits, bounds = request.limits, self.bounds
        request = msgspec.structs.replace(
            request, limits=msgspec.structs.replace(limits, nodes=limits.nodes or bounds.nodes)
        )
        order = Order(request=request, blobs=str(self._blobs.absolute()), out=str(out.absolute()))
        seconds = limits.seconds or bounds.seconds
        return WorkItem(
            key=begun.key,
            entry=ENTRY,
            data=msgspec.json.encode(order),
            live=True,
            limits=WorkLimits(
                interrupt_s=seconds,
                patience_s=seconds + JOB_PATIENCE_S,
                rss_bytes=limits.rss_bytes or int(bounds.rss_gib * 2**30),
                cores=limits.threads,
            ),
            files=WorkFiles(folder=order.blobs, reads=blobs_of(request), out=order.out, early=INCUMBENTS),
        )

    def _fail(self, begun: Attempt, outcome: Outcome) -> None:
        """End a job that cannot be begun."""
        self._close(begun, lambda ledger: ledger.finish(begun.number, begun.attempt, State.FAILED, outcome))

    def _stop_spent(self) -> None:
        """Interrupt the jobs of tokens that have had their hours."""
        tokens = {begun.token for begun in self._running.values()} - {""}
        if not tokens or time.monotonic() < self._measured + SPENT_S:
            return
        self._measured = time.monotonic()
        with suppress(FileError):  # it is told where something is due; hours that are over are so later
            quota_of = self._authenticator.quota
            spent = self._writer.do(lambda ledger: {name for name in tokens if ledger.is_spent(name, quota_of(name))})
            for key, begun in self._running.items():
                if begun.token in spent and key not in self._interrupted:
                    self._spent.add(key)
                    self._stop(key)

    def _stop(self, key: str, *, again: bool = False) -> None:
        """Interrupt an attempt, once; `again`: one that was interrupted before is ended."""
        if key not in self._running or key in self._over:
            return
        if key not in self._interrupted:
            self._interrupted[key] = _Stop()
            self._executor.cancel(key)
        elif again:
            self._interrupted[key].hurry()

    def _take(self, items: list[WorkEvent]) -> None:
        """Store the events of workers, those of one job that come together in one act."""
        events: dict[str, list[Event]] = {}
        for item in items:
            key = item.key
            if isinstance(item, ProgressMessage):
                data = msgspec.json.decode(item.data)
                event = Event(kind=data.pop("event"), data=data)
                self._logged[key] += event.kind == "log"
                if event.kind != "log" or self._logged[key] <= MOST_LOGGED:
                    events.setdefault(key, []).append(event)
                continue
            self._note(key, events.pop(key, []))
            self._ended(item)
        for key, news in events.items():
            self._note(key, news)
        self._pending.work()

    def _note(self, key: str, events: list[Event]) -> None:
        if events:
            begun = self._running[key]
            self._pending.add(
                lambda ledger: ledger.note(begun.number, begun.attempt, events),
                lambda ours: None if ours else self._stop(key),
            )

    def _ended(self, item: WorkResult | WorkFailure) -> None:
        begun = self._running[item.key]
        self.ran.add(item.seconds)
        if isinstance(item, WorkResult):
            done = msgspec.json.decode(item.data, type=Done)
            outcome = Outcome(
                exit_code=done.exit_code, error=done.error, where=done.where, remedy=done.remedy,
                result=done.result, files=done.files, digests=done.digests, seconds=item.seconds,
            )  # fmt: skip
            self._answered(begun, outcome, reused=item.reused)
        elif self._ending.is_set():
            self._release(begun, seconds=item.seconds, rescued=self._rescued(begun, item.seconds))
        elif item.why == "place":
            self._release(begun, seconds=item.seconds, why=item.detail, rescued=self._rescued(begun, item.seconds))
        elif item.why == "death":
            why, seconds, rescued = item.detail, item.seconds, self._rescued(begun, item.seconds)
            self._close(begun, lambda ledger: ledger.lose(begun.number, begun.attempt, why, seconds, rescued=rescued))
        else:
            remedy = "raise its limit, or give it less to do"
            left = self._rescued(begun, item.seconds) or Outcome(seconds=item.seconds)
            outcome = msgspec.structs.replace(
                left, exit_code=Exit.NOTHING, error=item.detail, where=None, remedy=remedy
            )
            keeps = bool(left.files)
            self._close(
                begun, lambda ledger: ledger.finish(begun.number, begun.attempt, State.FAILED, outcome, keeps=keeps)
            )

    def _rescued(self, begun: Attempt, seconds: float) -> Outcome | None:
        """Return the outcome of an attempt that was lost, from its files, each of them whole; None for none."""
        out = self.results(begun.id, begun.attempt)
        names = tuple(sorted(p.name for p in out.glob("[!.]*")))
        if not names or not self._settle(begun):
            return None
        left = left_summary(out)
        result = {} if left is None else msgspec.to_builtins(left) | {"interrupted": True}
        return Outcome(exit_code=Exit.INTERRUPTED, files=names, result=result, seconds=seconds)

    def _answered(self, begun: Attempt, outcome: Outcome, *, reused: bool) -> None:
        if outcome.exit_code == Exit.BUG and reused:  # it may be its worker's fault, which is not used again
            why = f"tried again in another worker: {outcome.error}"
            self._close(
                begun,
                lambda ledger: ledger.lose(begun.number, begun.attempt, why, outcome.seconds, failure=outcome),
            )
            return
        keeps = bool(outcome.files) and self._settle(begun)
        if begun.key in self._spent and _interrupted(outcome) and not keeps:
            hours = self._authenticator.quota(begun.token).hours
            error = f"its token has had its {hours:g} hours of the last 24 before there was a plan"
            outcome = msgspec.structs.replace(
                outcome, error=error, where=None, remedy="wait, or ask for a larger quota"
            )
        if self._ending.is_set() and _interrupted(outcome):
            self._release(begun, seconds=outcome.seconds, rescued=outcome if keeps else None)
            return
        state = State.DONE if outcome.exit_code == 0 or (keeps and _interrupted(outcome)) else State.FAILED
        self._close(
            begun, lambda ledger: ledger.finish(begun.number, begun.attempt, state, outcome, keeps=keeps), clears=True
        )

    def _close(self, begun: Attempt, act: Callable[[Ledger], bool], *, clears: bool = False) -> None:
        """Queue an attempt's last act; `clears`: then remove the files of all attempts but the kept one."""

        def done(ledger: Ledger) -> tuple[bool, int]:
            is_ours = act(ledger)
            return is_ours, ledger.kept(begun.number) if is_ours else 0

        def written(result: tuple[bool, int]) -> None:
            is_ours, kept = result
            del self._running[begun.key], self._logged[begun.key]
            self._interrupted.pop(begun.key, None)
            self._over.discard(begun.key)
            self._spent.discard(begun.key)
            if not is_ours:  # another server has it: nothing but this attempt's own files is this one's to remove
                shutil.rmtree(self.results(begun.id, begun.attempt), ignore_errors=True)
            elif clears:
                self._clear(begun, kept)

        self._over.add(begun.key)
        self._pending.add(done, written)

    def _settle(self, begun: Attempt) -> bool:
        """Make the names of an attempt's files last, as they do themselves; False where another server removed them."""
        out = self.results(begun.id, begun.attempt)
        try:
            for folder in (out, out.parent, self._folder):
                sync_folder(folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            _LOG.error("what job %s wrote may not outlast a crash: %s", begun.id, error.strerror or error)
        return True

    def _release(
        self, begun: Attempt, *, seconds: float, why: str = "the service ended", rescued: Outcome | None = None
    ) -> None:
        why = why if rescued is None else f"{why}; what was found is kept"
        self._close(
            begun, lambda ledger: ledger.release(begun.number, begun.attempt, why, rescued=rescued, seconds=seconds)
        )

    def _clear(self, begun: Attempt, kept: int) -> None:
        """Remove what a job's attempts left, but for that of the one that is kept."""
        folder = self._folder / begun.id
        with suppress(OSError):  # what stays is removed with the job
            for left in folder.iterdir():
                if left.name != str(kept):
                    shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _logged_failures(then: str) -> Iterator[None]:
    """Log that files cannot be looked at or removed, and what that means, and go on."""
    try:
        yield
    except (FileError, OSError) as error:
        _LOG.warning("%s; %s", one_line(str(error)), then)


def _interrupted(outcome: Outcome) -> bool:
    return outcome.exit_code in (Exit.INTERRUPTED, Exit.TERMINATED)
