"""Work on a Ray cluster of this machine: the same as in local processes, by the same functions."""

import signal
from collections.abc import Iterator

import pytest
from process_families import gone

from pesto.executing.executor import Answered, Limits, Lost, Outcome, Said, Work
from pesto.executing.ray_cluster import RayCluster

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
NUMBERED = iter(range(1000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster(2)
    yield made
    made.close()


def work(entry: str, data: bytes = b"0", **named: object) -> Work:
    return Work(key=f"{entry} {next(NUMBERED)}", entry=f"small_works:{entry}", data=data, **named)


def all_of(cluster: RayCluster, found: list[Outcome] | None = None) -> list[Outcome]:
    """All that comes until a work has ended."""
    found = [] if found is None else found
    while all(isinstance(outcome, Said) for outcome in found):
        found += cluster.collect()
    return found


def test_messages_come_in_order_and_before_the_answer(cluster) -> None:
    cluster.begin(work("echo", b"1000", live=True))
    *told, answer = all_of(cluster)
    assert [outcome.data for outcome in told] == [b"%d" % k for k in range(1000)]
    assert isinstance(answer, Answered) and answer.data == b"10001000"
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
        assert isinstance(answer, Answered) and answer.data == str(sent).encode()
        assert not cluster.cancel(mine.key, sent)


def test_a_signal_cuts_no_message_in_two(cluster) -> None:
    mine, data = work("storm", b"x" * 1000, live=True), b"x" * 1000
    cluster.begin(mine)
    heard = cluster.collect()
    cluster.cancel(mine.key)
    *said, answer = all_of(cluster, heard)
    assert isinstance(answer, Answered)
    assert [outcome.data for outcome in said] == [b"%d %s" % (k, data) for k in range(len(said))]
    assert len(said) - int(answer.data) in (0, 1)


def test_a_lost_work_says_why(cluster) -> None:
    """Dead, failed, cancelled, too large, too long; nothing that one had begun is left."""
    for entry, limits, why, detail in (
        ("dies", Limits(), "death", "WorkerCrashedError"),
        ("raises", Limits(), "death", "RuntimeError: 4194304"),
        ("awaits", Limits(patience_s=0.1), "time", "no answer long after the time limit"),
        ("stubborn", Limits(interrupt_s=0.1, grace_s=0.1), "time", "no answer long after it was interrupted"),
        ("hoard", Limits(rss_bytes=400 * 2**20), "memory", "needed more than 400.00 MiB"),
    ):
        cluster.begin(work(entry, b"%d" % 2**22, live=True, limits=limits))
        *said, lost = all_of(cluster)
        assert isinstance(lost, Lost)
        assert (lost.why, lost.detail.startswith(detail)) == (why, True), lost
    assert gone(int(said[0].data))
    plain = work("awaits")
    cluster.begin(plain)
    assert cluster.cancel(plain.key)
    (lost,) = all_of(cluster)
    assert isinstance(lost, Lost) and (lost.why, lost.detail) == ("death", "cancelled")


def test_a_limit_of_time_interrupts_first(cluster) -> None:
    cluster.begin(work("awaits", live=True, limits=Limits(interrupt_s=0.1)))
    *_, answer = all_of(cluster)
    assert isinstance(answer, Answered) and answer.data == b"2"
