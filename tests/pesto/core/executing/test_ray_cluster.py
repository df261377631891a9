"""Work on a Ray cluster of this machine: the same as in local processes, by the same functions."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from process_families import descendants, gone

from pesto.core.executing.executor import (
    ProgressMessage,
    WorkEvent,
    WorkFailure,
    WorkFiles,
    WorkItem,
    WorkLimits,
    WorkResult,
)
from pesto.core.executing.ray_cluster import RayCluster
from pesto.core.executing.ray_messages import MessageActor

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
NUMBERED = iter(range(1000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster(2)
    yield made
    made.close()


def work(entry: str, data: bytes = b"0", **named: object) -> WorkItem:
    return WorkItem(key=f"{entry} {next(NUMBERED)}", entry=f"small_works:{entry}", data=data, **named)


def all_of(cluster: RayCluster, found: list[WorkEvent] | None = None) -> list[WorkEvent]:
    """All that comes until a work has ended."""
    found = [] if found is None else found
    while all(isinstance(outcome, ProgressMessage) for outcome in found):
        found += cluster.collect()
    return found


def test_messages_come_in_order_and_before_the_answer(cluster) -> None:
    cluster.begin(work("echo", b"1000", live=True))
    *told, answer = all_of(cluster)
    assert [outcome.data for outcome in told] == [b"%d" % k for k in range(1000)]
    assert isinstance(answer, WorkResult) and answer.data == b"10001000"
    assert cluster.collect(0.0) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_for_the_work_at_hand(cluster, sent) -> None:
    """Also one that is sent before it has begun; and a process that is used again has its own handlers."""
    for entry in ("asleep", "awaits"):
        mine = work(entry, live=True)
        cluster.begin(mine)
        heard = cluster.collect() if entry == "awaits" else []
        assert cluster.cancel(mine.key, sent)
        *_, answer = all_of(cluster, heard)
        assert isinstance(answer, WorkResult) and answer.data == str(sent).encode()
        assert not cluster.cancel(mine.key, sent)


def test_a_signal_cuts_no_message_in_two(cluster) -> None:
    mine, data = work("storm", b"x" * 1000, live=True), b"x" * 1000
    cluster.begin(mine)
    heard = cluster.collect()
    cluster.cancel(mine.key)
    *said, answer = all_of(cluster, heard)
    assert isinstance(answer, WorkResult)
    assert [outcome.data for outcome in said] == [b"%d %s" % (k, data) for k in range(len(said))]
    assert len(said) - int(answer.data) in (0, 1)


def test_a_lost_work_says_why(cluster) -> None:
    """Dead, failed, cancelled, too large, too long; nothing that one had begun is left."""
    for entry, limits, why, detail in (
        ("dies", WorkLimits(), "death", "WorkerCrashedError"),
        ("raises", WorkLimits(), "death", "RuntimeError: 4194304"),
        ("awaits", WorkLimits(patience_s=0.1), "time", "no answer long after the time limit"),
        ("stubborn", WorkLimits(interrupt_s=0.1, grace_s=0.1), "time", "no answer long after it was interrupted"),
        ("hoard", WorkLimits(rss_bytes=400 * 2**20), "memory", "needed more than 400.00 MiB"),
    ):
        cluster.begin(work(entry, b"%d" % 2**22, live=True, limits=limits))
        *said, lost = all_of(cluster)
        assert isinstance(lost, WorkFailure)
        assert (lost.why, lost.detail.startswith(detail)) == (why, True), lost
    assert gone(int(said[0].data))
    plain = work("awaits")
    cluster.begin(plain)
    assert cluster.cancel(plain.key)
    (lost,) = all_of(cluster)
    assert isinstance(lost, WorkFailure) and (lost.why, lost.detail) == ("death", "cancelled")


def test_a_limit_of_time_interrupts_first(cluster) -> None:
    cluster.begin(work("awaits", live=True, limits=WorkLimits(interrupt_s=0.1)))
    *_, answer = all_of(cluster)
    assert isinstance(answer, WorkResult) and answer.data == b"2"


def test_files_go_there_and_come_back(cluster, tmp_path) -> None:
    """As copies, which are removed: by the next work where a process was killed."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "word").write_bytes(b"quiet")
    files = WorkFiles(folder=str(tmp_path / "in"), reads=("word",), out=str(tmp_path / "out"))
    lines = [files.folder.encode(), files.out.encode(), b"word"]
    cluster.begin(work("shouts", b"\n".join([*lines, b"waits"]), live=True, files=files))
    (said,) = cluster.collect()
    (worker,) = [pid for pid in descendants(os.getpid()) if title(pid).startswith("ray::_done")]
    os.kill(worker, signal.SIGKILL)
    (lost,) = all_of(cluster)
    assert isinstance(lost, WorkFailure) and lost.why == "death"
    assert not (tmp_path / "out").exists()
    assert Path(said.data.decode()).exists() and said.data != files.folder.encode()
    cluster.begin(work("shouts", b"\n".join([*lines, b""]), live=True, files=files))
    *_, answer = all_of(cluster)
    assert isinstance(answer, WorkResult) and (tmp_path / "out" / "loud").read_bytes() == b"QUIET"
    assert not Path(said.data.decode()).exists() and not Path(answer.data.decode()).exists()


def test_early_results_are_there_before_the_end_and_where_the_worker_is_killed(cluster, tmp_path) -> None:
    out = tmp_path / "out"
    files = WorkFiles(folder=str(tmp_path), out=str(out), early=("sketch", "none"))
    for killed in (True, False):
        mine = work("sketches", str(out).encode(), live=True, files=files)
        cluster.begin(mine)
        while not (out / "sketch").exists():
            assert all(isinstance(outcome, ProgressMessage) for outcome in cluster.collect(0.1))
        assert [path.name for path in out.iterdir()] == ["sketch"]
        if killed:
            cluster.cancel(mine.key, signal.SIGKILL)
            *_, lost = all_of(cluster)
            assert isinstance(lost, WorkFailure) and (out / "sketch").read_bytes() == b"sketch"
            (out / "sketch").unlink()
        else:
            cluster.cancel(mine.key)
            *_, answer = all_of(cluster)
            assert isinstance(answer, WorkResult) and [path.name for path in out.iterdir()] == ["other"]


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_what_has_no_room_is_neither_late_nor_kept_from_ending(cluster) -> None:
    """Its limits begin with its process; a signal ends it without one."""
    first, second = work("awaits", live=True), work("awaits", live=True)
    third = work("awaits", live=True, limits=WorkLimits(interrupt_s=0.0, patience_s=0.0))
    for one in (first, second):
        cluster.begin(one)
    heard = cluster.collect()
    while len(heard) < 2:
        heard += cluster.collect()
    for number, sent in enumerate((signal.SIGINT, signal.SIGKILL)):
        one = replace(third, key=f"{third.key} {number}")
        cluster.begin(one)
        assert cluster.collect(0.5) == []
        assert cluster.cancel(one.key, sent)
        (lost,) = all_of(cluster)
        assert isinstance(lost, WorkFailure) and (lost.why, lost.detail) == ("place", "cancelled before it began")
        assert lost.seconds == 0.0
    for one in (first, second):
        assert cluster.cancel(one.key)
        *_, answer = all_of(cluster)
        assert isinstance(answer, WorkResult)


def test_nobody_waits_at_the_post_for_a_work_that_is_over() -> None:
    """A call that never ends is one of so many that the post answers at once."""

    async def both() -> None:
        post = MessageActor()
        waiting = asyncio.create_task(post.signal("a"))
        await asyncio.sleep(0)
        await post.over("a")
        await post.over("b")
        assert await waiting == 0
        await post.send("c", 2)
        await post.send("c", 0)
        assert [await post.signal("c"), await post.signal("c")] == [2, 0]
        assert not post._signals

    asyncio.run(both())
