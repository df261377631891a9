"""Who asks for a link first by the wall clock: the order of ends, however the threads of an executor race."""

import pytest

from pesto.tf.emulate.clocks import EmulatedWork, PendingInputs, WallClock

LINK, OTHER = 9, 8


def work(
    data: tuple[tuple[int, ...], ...],
    sent: tuple[tuple[int, int], ...],
    holds: tuple[tuple[int, ...], ...],
    ticks: tuple[int, ...],
) -> EmulatedWork:
    """Functions 0, 1, ... of one device; those with a payload are transfers."""
    n = len(data)
    return EmulatedWork(
        names=tuple(f"f{k}" for k in range(n)), cpu=(0,) * n, holds=holds, ticks=ticks, data=data, controls=((),) * n,
        op=tuple(k if sent[k][0] < 0 else -1 for k in range(n)), sent=sent, rank=tuple(range(n)),
    )  # fmt: skip


@pytest.mark.parametrize("ticks", [0, 5])
def test_a_later_turn_does_not_overtake_the_first(ticks: int) -> None:
    """0 sends (2), and behind it stands a relay, or an op (1), which sends (3): whatever thread comes first."""
    made = work(
        data=((), (0,), (0,), (1,)), sent=((-1, -1), (-1, -1), (7, 1), (4, 1)),
        holds=((0,), (0,), (LINK,), (LINK,)), ticks=(3, ticks, 40, 40),
    )  # fmt: skip
    clock = WallClock(made, tick_s=1e-6)
    for k in (0, 1, 3, 2):
        clock.pass_by(k)
    times = clock.times()
    assert times[2][0] >= times[0][1]
    assert times[3][0] >= times[2][1]


def test_what_one_end_makes_ready_asks_in_the_order_of_payloads_and_targets() -> None:
    made = work(
        data=((), (0,), (0,), (0,)), sent=((-1, -1), (5, 2), (5, 1), (3, 4)),
        holds=((0,), (LINK,), (LINK, OTHER), (OTHER,)), ticks=(3, 20, 30, 10),
    )  # fmt: skip
    clock = WallClock(made, tick_s=1e-6)
    for k in (0, 1, 2, 3):
        clock.pass_by(k)
    times = clock.times()
    assert times[2][0] >= times[3][1]
    assert times[1][0] >= times[2][1]


def test_a_transfer_asks_once_all_that_it_waits_for_has_ended() -> None:
    made = work(
        data=((), (), (0, 1)), sent=((-1, -1), (-1, -1), (0, 1)), holds=((0,), (1,), (LINK,)), ticks=(3, 2000, 10)
    )
    clock = WallClock(made, tick_s=1e-6)
    clock.pass_by(0)
    assert clock.times()[2] == (-1.0, -1.0)
    clock.pass_by(1)
    assert clock.times()[2][0] >= clock.times()[1][1]


def test_what_waits_for_nothing_asks_when_it_is_reached() -> None:
    made = work(data=((),), sent=((0, 1),), holds=((LINK,),), ticks=(3,))
    clock = WallClock(made, tick_s=1e-6)
    end = clock.pass_by(0)
    assert clock.times()[0] == pytest.approx((end - 3, end))
    assert end >= 3


def test_functions_can_start_when_the_last_that_they_wait_for_ends() -> None:
    made = work(data=((), (0, 0), (0, 1), ()), sent=((-1, -1),) * 4, holds=((),) * 4, ticks=(1,) * 4)
    waiting = PendingInputs(made)
    assert [waiting.waits(k) for k in range(4)] == [False, True, True, False]
    assert waiting.end(0) == [1]
    assert waiting.end(3) == []
    assert waiting.end(1) == [2]
    assert not any(waiting.waits(k) for k in range(4))
