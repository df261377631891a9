"""Work on a Ray cluster: each is a remote task. Ray is where work runs; what came of it is kept by who began it."""

import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from pesto.core.distribution import install_command
from pesto.core.errors import FileError, SolverError, UsageError
from pesto.core.executing.executor import (
    Deadline,
    FailureKind,
    ProgressMessage,
    WorkEvent,
    WorkFailure,
    WorkItem,
    WorkResult,
)
from pesto.core.executing.ray_messages import (
    EARLY_RESULTS,
    MEMORY_EXCEEDED,
    RETIRED,
    ActorChannel,
    MessageActor,
    SilentChannel,
    copied_files,
    read_inputs,
    receive_signals,
    send_early_results,
    write_results,
)
from pesto.core.executing.worker import BEGAN, SAID, SignalLatch, function_of
from pesto.core.files.json import shown

_POLL_S = 1.0
_POKE_S = 0.1
"""Seconds that a poke may be late: Ray waits for nothing but its own."""
_CALLS = 1000
"""Calls that the post answers at once, beside those of works: Ray has later ones wait."""
_AGAIN_S = 5.0
"""Seconds after which Ray is asked again to end what it has not ended."""
_ANSWER_S = 10.0
"""Seconds that whoever listens at the cluster's address may take to answer."""
_UNBEGUN: tuple[FailureKind, str] = ("place", "cancelled before it began")
"""Why a work is lost that was ended before it had a process: no worker died of it."""
_UNBEGUN_S = 1.5
"""Seconds that a work which was sent a signal may wait for a process of its own, before it is ended without one."""


class _RunningTask:
    """A work that runs."""

    def __init__(self, work: WorkItem, read: dict[str, Any]) -> None:
        self.work, self._since = work, time.monotonic()
        self.read = read
        """Files that it reads, in Ray's store as long as this holds them."""
        self.begun = not work.live
        self.deadline = Deadline(work.limits)
        self.signalled: float | None = None
        """Seconds of the clock when it was sent a signal that it had not begun to hear."""
        self.fell: tuple[FailureKind, str] | None = None
        """Reason of its loss, where that is known before Ray says so."""
        self.ended = 0.0
        """Seconds of the clock when Ray was asked last to end it."""

    @property
    def passed(self) -> float:
        """Seconds since it has a process, as far as that is told: before, it waits for room in the cluster."""
        return time.monotonic() - self._since

    def begins(self) -> None:
        """Note that it has a process now."""
        self.begun, self._since = True, time.monotonic()
        if self.signalled is not None:
            self.deadline.interrupted(0.0)

    def late(self) -> tuple[FailureKind, str] | None:
        """Return why it is to be ended, or None."""
        if not self.begun:
            waited = self.signalled is not None and time.monotonic() >= self.signalled + _UNBEGUN_S
            return _UNBEGUN if waited else None
        late = self.deadline.late(self.passed)
        return None if late is None else ("time", late)


class RayCluster:
    """The cluster that RAY_ADDRESS names, or else this machine.

    Every node needs this project and its solvers. Files of works go there and come back as bytes; what a work names
    beside them (`WorkItem.files`) is to be under the same path on each node.
    """

    def __init__(self, jobs: int | None, *, room: bool = True) -> None:
        """Connect. `room`: refuse more jobs than there are CPUs; otherwise some wait until there are more nodes.

        Raise SolverError when Ray is missing, FileError when the cluster cannot be reached, UsageError when it has no
        room.
        """
        # Where nobody listens at host:port Ray itself tries for minutes; other forms of addresses are Ray's to read.
        address = os.environ.get("RAY_ADDRESS", "")
        host, _, port = address.rpartition(":")
        if host and port.isdigit() and "/" not in host:
            try:
                socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
            except (OSError, OverflowError) as error:
                raise FileError.build(
                    f"no Ray cluster: nobody answers at {shown(address)}", remedy="check RAY_ADDRESS"
                ) from error
        try:
            import ray
        except ImportError as error:
            raise SolverError.build(
                "Ray runs nothing without the package ray", remedy=f"{install_command('ray')}"
            ) from error
        self._ray: Any = ray
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(log_to_driver=False, include_dashboard=None if address else False, configure_logging=False)
        except Exception as error:  # of whatever type Ray likes
            raise FileError.build(
                f"no Ray cluster: {' '.join(str(error).split())}", remedy="check RAY_ADDRESS"
            ) from error
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own there
        nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        cores = sum(nodes)
        self._slots = jobs if jobs is not None else max(1, cores // 2)
        if self._slots > cores and (room or not cores):
            self.close()
            raise UsageError.build(
                f"{self._slots} jobs on a cluster of {cores} CPUs", remedy="give at most one job a CPU"
            )
        self._each = cpus_per_work(nodes, self._slots)
        # A work that loses its process is begun again by who began it, and who counts.
        self._remote = ray.remote(num_cpus=self._each, max_retries=0)(_run_task)
        self._running: dict[Any, _RunningTask] = {}
        self._post: Any = None
        self._news: Any = None
        self._poked = False

    @property
    def slots(self) -> int:
        """Most works at a time."""
        return self._slots

    def begin(self, work: WorkItem) -> None:
        """Submit a work."""
        if work.live and self._post is None:
            # On this node, as it is to last as long as this process does.
            node = self._ray.get_runtime_context().get_node_id()
            here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            calls = 2 * self._slots + _CALLS  # each work has one that waits for its signals
            actor = self._ray.remote(num_cpus=0, scheduling_strategy=here, max_concurrency=calls)(MessageActor)
            self._post = actor.remote()
            self._news = self._post.take.remote()
        post = self._post if work.live else None
        cores = self._each if work.limits.cores is None else min(self._each, work.limits.cores)
        remote = self._remote if cores == self._each else self._remote.options(num_cpus=cores)
        read = {name: self._ray.put(data) for name, data in read_inputs(work.files)}
        reference = remote.remote(work, post, read)
        self._running[reference] = _RunningTask(work, read)

    def collect(self, seconds: float | None = None) -> list[WorkEvent]:
        """Wait for a work, its messages, or the end of its time; Ray says when its process or node is lost."""
        until = None if seconds is None else time.monotonic() + seconds
        events: list[WorkEvent] = []
        while not events and (self._running or until is not None):
            poked, self._poked = self._poked, False
            if poked:
                break
            left = _POLL_S if until is None else min(_POKE_S, max(0.0, until - time.monotonic()))
            waited = [*self._running, *([] if self._news is None else [self._news])]
            if waited:
                done, _ = self._ray.wait(waited, num_returns=1, timeout=left)
                ended = [reference for reference in done if reference != self._news]
                if ended and self._post is not None:
                    self._post.flush.remote()  # what a work told before its end comes before its end
                events = self._take_messages() if done and self._post is not None else []
                events += [self._outcome(reference) for reference in ended]
                for reference, task in list(self._running.items()):
                    if (late := task.fell or task.late()) is not None:
                        self._end(reference, *late)
                    elif task.begun and task.deadline.interrupts(task.passed):
                        self.cancel(task.work.key)
            else:
                time.sleep(left)
            if until is not None and time.monotonic() >= until:
                break
        return events

    def cancel(self, key: str, signum: signal.Signals = signal.SIGINT) -> bool:
        """Send a signal to a live work, kill another. Return False when none of that key runs."""
        for reference, task in self._running.items():
            if task.work.key == key:
                if not task.work.live or signum == signal.SIGKILL:
                    self._end(reference, *(("death", "cancelled") if task.begun else _UNBEGUN))
                    return True
                if task.begun:
                    task.deadline.interrupted(task.passed)
                elif task.signalled is None:
                    task.signalled = time.monotonic()
                if self._post is not None:  # without it the work ends by itself
                    self._post.send.remote(task.work.key, int(signum))
                return True
        return False

    def poke(self) -> None:
        """Have `collect` return; from any thread."""
        self._poked = True

    def close(self) -> None:
        """Leave the cluster, which ends this run's tasks."""
        self._ray.shutdown()

    def _take_messages(self) -> list[WorkEvent]:
        try:
            messages = self._ray.get(self._news)
        except self._ray.exceptions.RayError:  # works that told by it end themselves; later ones have another
            self._post = self._news = None
            return []
        self._news = self._post.take.remote()
        tasks = {task.work.key: task for task in self._running.values()}
        events: list[WorkEvent] = []
        for key, message in messages:
            if key in tasks and message[:1] == SAID:
                events.append(ProgressMessage(key=key, data=message[1:]))
            elif key in tasks and message[:1] == BEGAN:
                tasks[key].begins()
            elif key in tasks and message[:1] == MEMORY_EXCEEDED:
                tasks[key].fell = "memory", message[1:].decode()
            elif key in tasks and message[:1] == EARLY_RESULTS:
                early = msgspec.msgpack.decode(message[1:], type=dict[str, bytes | None])
                with suppress(FileError):  # it is brought again, at the latest with the answer
                    write_results(tasks[key].work.files, early)
            elif key in tasks and message[:1] == RETIRED:
                tasks[key].fell = "place", "it was sent to a worker that an earlier work had retired"
        return events

    def _end(self, reference: Any, why: FailureKind, detail: str) -> None:
        """Kill a task's process; its end is reported as that of others is."""
        task = self._running[reference]
        if task.fell is None or time.monotonic() >= task.ended + _AGAIN_S:  # Ray promises no more than to try
            task.fell, task.ended = (why, detail), time.monotonic()
            self._ray.cancel(reference, force=True)

    def _outcome(self, reference: Any) -> WorkEvent:
        task = self._running.pop(reference)
        seconds = task.passed
        try:
            data, written, reused = self._ray.get(reference)
            write_results(task.work.files, dict.fromkeys(task.work.files.early) | written)
            return WorkResult(key=task.work.key, data=data, seconds=seconds, reused=reused)
        except (self._ray.exceptions.RayError, FileError) as error:
            cause = getattr(error, "cause", None) or error  # of what the function raised itself
            if task.work.live and self._post is not None:
                self._post.over.remote(task.work.key)
            why, detail = task.fell or ("death", " ".join(f"{type(cause).__name__}: {cause}".split())[:300])
            return WorkFailure(key=task.work.key, why=why, detail=detail, seconds=seconds if task.begun else 0.0)


def cpus_per_work(nodes: Sequence[int], slots: int) -> int:
    """CPUs of each of so many works, so that all find room at once on the nodes; they have one each at least."""
    limit = sum(nodes) // slots
    return next((each for each in range(limit, 1, -1) if sum(node // each for node in nodes) >= slots), 1)


class _TaskProcess:
    """State of a Ray worker's process over its tasks."""

    works = 0
    retired = False
    """True once a work has said that this process must do no more."""


def _run_task(work: WorkItem, post: Any, read: dict[str, Any]) -> tuple[bytes, dict[str, bytes], bool]:
    """Run a work where Ray sends it, in the main thread of a process that is used again; Ray binds nobody to cores.

    Return the answer, the files written, and True if the process had done other work before.
    """
    import ray

    if _TaskProcess.retired:
        if post is not None:
            ray.get(post.tell.remote([(work.key, RETIRED)]))
        os._exit(1)
    _TaskProcess.works += 1
    reused = _TaskProcess.works > 1
    cores = int(ray.get_runtime_context().get_assigned_resources().get("CPU", 0))
    entry = function_of(work.entry)
    with copied_files(work.files, dict(zip(read, ray.get(list(read.values())), strict=True))) as files:
        if not work.live:
            return entry(work.data, SilentChannel(cores, files)), files.written(), reused
        signals = SignalLatch()
        line = ActorChannel(work.key, post, signals, cores, files)
        with _own_signal_handlers():
            signals.remember()
            signals.begin(live=True)
            with (
                receive_signals(work.key, post, work.limits.rss_bytes),
                send_early_results(work.key, post, work.files.early, files),
            ):
                answer = entry(work.data, line)
                signals.remember()
            line.close()
        _TaskProcess.retired = line.retired
        return answer, files.written(), reused


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Have signals reach this thread in the block, and afterwards be as Ray has them, which blocks SIGINT."""
    heard = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in heard}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
