"""Work in processes on this machine: what it tells, signals for it, its limits, its loss, and nothing left behind."""

import errno
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_families import descendants, gone

from pesto.core.executing import pool as pools
from pesto.core.executing.executor import (
    Backoff,
    ProgressMessage,
    WorkEvent,
    WorkFailure,
    WorkItem,
    WorkLimits,
    WorkResult,
)
from pesto.core.executing.pool import Pool

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(2)
    yield made
    made.close()


def work(entry: str, data: bytes = b"0", **named: object) -> WorkItem:
    return WorkItem(key=entry, entry=f"small_works:{entry}", data=data, **named)


def all_of(pool: Pool, entries: int = 1) -> list[WorkEvent]:
    """All that comes until so many works have ended."""
    found: list[WorkEvent] = []
    while sum(not isinstance(outcome, ProgressMessage) for outcome in found) < entries:
        found += pool.collect()
    return found


def until_said(pool: Pool) -> ProgressMessage:
    (found,) = pool.collect()
    assert isinstance(found, ProgressMessage)
    return found


def test_messages_come_in_order_and_before_the_answer(pool) -> None:
    """More than are taken at once; a second work at the same time has its own."""
    mine, other = work("echo", b"1000"), work("where")
    pool.begin(mine)
    pool.begin(other)
    found = all_of(pool, 2)
    told = [outcome for outcome in found if outcome.key == mine.key]
    assert [outcome.data for outcome in told] == [*(b"%d" % k for k in range(1000)), b"10001000"]
    assert isinstance(told[-1], WorkResult) and told[-1].seconds > 0
    (where,) = (outcome for outcome in found if outcome.key == other.key)
    assert isinstance(where, WorkResult)
    assert pool.collect(0.0) == []


def test_a_worker_is_ready_before_there_is_work_and_another_once_it_has_died() -> None:
    """Also with something that it cannot do before, which is its works' to tell."""
    others = descendants(os.getpid())
    for ready, count in (("small_works:prepare", 1), ("small_works:nothing", 0)):
        pool = Pool(1, ready=ready)
        assert pool.collect(0.0) == []
        for _ in range(2):
            (pid,) = descendants(os.getpid()) - others
            pool.begin(work("prepared"))
            (found,) = all_of(pool)
            assert isinstance(found, WorkResult) and found.data.decode() == f"{pid} {[pid] * count}"
            pool.begin(work("dies"))
            assert isinstance(all_of(pool)[-1], WorkFailure)
            assert pool.collect(0.0) == []
        pool.close()


def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch) -> None:
    """No process, no file descriptor: a work is given back, nothing is begun in a pause, and its cores are not lost."""
    clock, start = Hands(), pools.WorkerProcess
    pool = Pool(1, ready="small_works:nothing", clock=clock)

    def fails(*_: object) -> None:
        raise OSError(errno.EAGAIN, "no process")

    monkeypatch.setattr(pools, "WorkerProcess", fails)
    mine = work("where")
    pool.begin(mine)
    (lost,) = pool.collect(0.0)
    assert (lost.key, lost.why, pool.slots) == (mine.key, "place", 0)
    monkeypatch.setattr(pools, "WorkerProcess", start)
    assert pool.collect(0.0) == [] and pool.slots == 0
    clock.now += 1.0
    while not pool.slots:
        pool.collect(0.1)
    pool.begin(mine)
    assert isinstance(all_of(pool)[-1], WorkResult)
    pool.close()


class Hands:
    """A clock that stands unless it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_workers_that_end_before_they_are_ready_are_begun_again_with_pauses(tmp_path, monkeypatch, caplog) -> None:
    """Meanwhile no work is taken; once one gets ready, all is as before."""
    others, clock, there = descendants(os.getpid()), Hands(), tmp_path / "there"
    monkeypatch.setenv("PREPARED_IF", str(there))
    pool = Pool(1, ready="small_works:prepare_if", clock=clock)
    try:
        assert pool.slots == 1
        for pause in (0.1, 0.2, 0.4):
            assert pool.collect(0.0) == []
            assert len(descendants(os.getpid()) - others) == 1
            while descendants(os.getpid()) - others:  # it is there until its end was seen
                assert pool.collect(0.01) == []
            assert pool.slots == 0
            clock.now += 0.9 * pause
            assert pool.collect(0.0) == [] and not descendants(os.getpid()) - others
            clock.now += 0.2 * pause
        words = "the worker ended: exit code 3: no such thing before it was ready; the next one begins in"
        assert [record.message for record in caplog.records] == [
            f"{words} {pause}" for pause in ("100.00 ms", "200.00 ms", "400.00 ms")
        ]
        there.touch()
        assert pool.collect() == [] and pool.slots == 1  # it waits for the first that can be handed a work
        pool.begin(work("echo"))
        (found,) = all_of(pool)
        assert isinstance(found, WorkResult)
    finally:
        pool.close()


def test_an_idle_worker_that_was_killed_is_replaced_and_ready(pool) -> None:
    """At once; a pool without anything to be ready with has one less."""
    others = descendants(os.getpid())
    mine = Pool(1, ready="small_works:prepare", clock=Hands())
    try:
        for _ in range(3):
            assert mine.collect(0.0) == []
            mine.begin(work("prepared"))
            (found,) = all_of(mine)
            assert isinstance(found, WorkResult)
            pid = int(found.data.split()[0])
            assert found.data.decode() == f"{pid} {[pid]}" and descendants(os.getpid()) - others == {pid}
            os.kill(pid, signal.SIGKILL)
            assert gone(pid)
        pool.begin(work("where"))
        (found,) = all_of(pool)
        assert isinstance(found, WorkResult)
        os.kill(int(found.data.split()[0]), signal.SIGKILL)
        assert gone(int(found.data.split()[0]))
        assert pool.collect(0.0) == [] and pool.slots == 2
    finally:
        mine.close()


def test_pauses_double_up_to_a_bound() -> None:
    clock = Hands()
    backoff = Backoff(clock)
    assert not backoff.failing and backoff.left_s == 0
    pauses = []
    for _ in range(12):
        backoff.failed()
        backoff.failed()  # of one that was begun before the pause
        pauses.append(backoff.left_s)
        clock.now += backoff.left_s
        assert backoff.failing and backoff.left_s == 0
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30])
    backoff.worked()
    assert not backoff.failing
    backoff.failed()
    assert backoff.left_s == pytest.approx(0.1)


def test_a_worker_does_several_works_and_is_replaced_where_it_may_not_have_all_cores(pool) -> None:
    pids = []
    for cores in (None, None, 1, 1):
        pool.begin(work("where", limits=WorkLimits(cores=cores)))
        (found,) = all_of(pool)
        assert isinstance(found, WorkResult)
        pid, rest = found.data.decode().split(" ", 1)
        pids.append(int(pid))
        assert cores is None or len(rest.partition("]")[0].split(",")) == 1
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_work_can_retire_its_worker(pool) -> None:
    """It answers, and the next work has a process that did none before."""
    pids = []
    for entry in ("where", "retires", "where", "where"):
        pool.begin(work(entry))
        (found,) = all_of(pool)
        assert isinstance(found, WorkResult)
        pids.append((int(found.data.split()[0]), found.reused))
    (first, *_), (second, *_), (third, *_), (fourth, *_) = pids
    assert first == second != third == fourth
    assert [reused for _, reused in pids] == [False, True, False, True]
    assert gone(first)


def test_sigkill_ends_a_live_work_with_its_process_group(pool) -> None:
    pool.begin(work("forks_and_hangs", live=True))
    child = int(until_said(pool).data)
    assert pool.cancel("forks_and_hangs", signal.SIGTERM)
    assert pool.collect(0.1) == []
    assert pool.cancel("forks_and_hangs", signal.SIGKILL)
    (found,) = all_of(pool)
    assert isinstance(found, WorkFailure) and (found.why, found.detail) == ("death", "cancelled")
    assert gone(child)


def test_a_nice_worker_leaves_the_processors_to_others() -> None:
    pool = Pool(1, niceness=7, keep_bytes=1)
    try:
        pids = set()
        for _ in range(2):
            pool.begin(work("where"))
            (found,) = all_of(pool)
            assert isinstance(found, WorkResult)
            assert found.data.split()[-1] == b"%d" % (os.nice(0) + 7)
            pids.add(found.data.split()[0])
        assert len(pids) == 2, "who holds more than may be kept is not used again"
        if Path("/proc/self/autogroup").exists():  # by session first, as Linux shares processors out
            pool.begin(work("session"))
            (found,) = all_of(pool)
            assert found.data.split()[-1] == b"%d" % (os.nice(0) + 7)
    finally:
        pool.close()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_for_the_work_at_hand(pool, sent) -> None:
    """It waits for the beginning of its work, and what comes late is for none that follows."""
    pool.begin(work("asleep", live=True))
    assert pool.cancel("asleep", sent)
    (found,) = all_of(pool)
    assert isinstance(found, WorkResult) and found.data == str(sent).encode()
    assert not pool.cancel("asleep", sent)
    pool.begin(work("awaits", live=True))
    until_said(pool)
    assert pool.cancel("awaits", sent)
    (found,) = all_of(pool)
    assert isinstance(found, WorkResult) and found.data == str(sent).encode()


def test_a_signal_cuts_no_message_in_two(pool) -> None:
    """Whatever the work is at when it is struck."""
    data = b"x" * 100_000
    pool.begin(work("storm", data, live=True))
    said = [outcome.data for outcome in pool.collect()]
    assert pool.cancel("storm")
    *more, answer = all_of(pool)
    said += [outcome.data for outcome in more]
    assert isinstance(answer, WorkResult)
    whole = [message.partition(b" ") for message in said]
    assert [int(number) for number, _, _ in whole] == list(range(len(said)))
    assert {text for _, _, text in whole} == {data}
    assert len(said) - int(answer.data) in (0, 1)  # one was sent and not counted, where the signal came between


def test_what_is_not_live_is_ended_by_a_cancellation(pool) -> None:
    pool.begin(work("awaits"))
    until_said(pool)
    assert pool.cancel("awaits")
    (found,) = all_of(pool)
    assert isinstance(found, WorkFailure) and (found.why, found.detail) == ("death", "cancelled")


@pytest.mark.parametrize(
    ("entry", "detail"),
    [("dies", "exit code 3: worse than ever"), ("raises", "exit code 1: RuntimeError: 3")],
)
def test_a_lost_work_has_an_exit_summary_and_its_worker_is_replaced(pool, entry, detail) -> None:
    pool.begin(work(entry, b"3"))
    *_, lost = all_of(pool)
    assert isinstance(lost, WorkFailure)
    assert (lost.why, lost.detail) == ("death", f"the worker ended: {detail}")
    pool.begin(work("echo"))
    (found,) = all_of(pool)
    assert isinstance(found, WorkResult)


def test_who_needs_more_memory_than_it_may_is_killed_with_all_below(pool) -> None:
    pool.begin(work("hoard", b"%d" % 2**22, limits=WorkLimits(rss_bytes=200 * 2**20)))
    said, lost = all_of(pool)
    assert isinstance(lost, WorkFailure)
    assert (lost.why, lost.detail) == ("memory", "needed more than 200.00 MiB")
    assert gone(int(said.data))


@pytest.mark.slow
def test_limits_of_time() -> None:
    """The first interrupts, as Ctrl-C does; the second one kills, as does the third, of who minds no interruption."""
    pool = Pool(1)
    try:
        pool.begin(work("awaits", live=True, limits=WorkLimits(interrupt_s=0.1)))
        *_, found = all_of(pool)
        assert isinstance(found, WorkResult) and found.data == b"2"
        assert found.seconds >= 0.1
        pool.begin(work("awaits", limits=WorkLimits(patience_s=0.1)))
        *_, lost = all_of(pool)
        assert isinstance(lost, WorkFailure)
        assert (lost.why, lost.detail) == ("time", "no answer long after the time limit")
        pool.begin(work("stubborn", live=True, limits=WorkLimits(grace_s=0.1)))
        until_said(pool)
        pool.cancel("stubborn")
        *_, lost = all_of(pool)
        assert isinstance(lost, WorkFailure)
        assert (lost.why, lost.detail) == ("time", "no answer long after it was interrupted")
    finally:
        pool.close()


def test_a_poke_ends_the_wait(pool) -> None:
    """From another thread, and also where nothing runs; a poke that nobody waits for is not lost."""
    pool.poke()
    assert pool.collect(600.0) == []
    threading.Timer(0.05, pool.poke).start()
    assert pool.collect(600.0) == []
    pool.begin(work("awaits", live=True))
    until_said(pool)
    threading.Timer(0.05, pool.poke).start()
    assert pool.collect(600.0) == []


def test_nothing_is_left_when_a_pool_is_closed() -> None:
    pool = Pool(2)
    pool.begin(work("hoard", b"1"))
    child = int(until_said(pool).data)
    pool.close()
    assert gone(child)


def test_jobs_get_cores_of_their_own(monkeypatch) -> None:
    """As many each as go round; where there are fewer cores than jobs, nobody is bound."""
    for cores, jobs, shares in (
        ([0, 1, 2, 3, 4], 2, [(0, 1), (2, 3)]), ([3, 7], 2, [(3,), (7,)]), ([0, 1], 3, [(), (), ()]),
    ):  # fmt: skip
        monkeypatch.setattr("pesto.core.executing.pool._cores", lambda cores=cores: cores)
        assert Pool(jobs)._free == shares
