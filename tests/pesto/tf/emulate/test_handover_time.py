"""What a step by the wall clock lost between functions is found on its path, and the scale that is chosen hides it."""

import pytest

from pesto.core.problem import TICK_S
from pesto.tf.emulate.clocks import EmulatedWork, count_handover_ticks
from pesto.tf.emulate.emulate_options import CHOSEN_S, MARGIN, PROBE_S, SHARE, WALL, EmulationOptions
from pesto.tf.tensorflow_start import load_tensorflow

load_tensorflow()

from pesto.tf.emulate import emulation  # noqa: E402  # after the quiet load


def work(holds: tuple[tuple[int, ...], ...], data: tuple[tuple[int, ...], ...]) -> EmulatedWork:
    n = len(holds)
    return EmulatedWork(
        names=tuple("abcd"[:n]), cpu=(0,) * n, holds=holds, ticks=(10,) * n, data=data, controls=((),) * n,
        op=tuple(range(n)), sent=((-1, -1),) * n, rank=tuple(range(n)),
    )  # fmt: skip


def test_each_function_of_the_path_adds_what_it_was_reached_late() -> None:
    """a -> b -> c; d, which nobody waits for and which ends before c, adds nothing however late it was."""
    w = work(((0,), (0,), (0,), (1,)), ((), (0,), (1,), ()))
    reached = [2.0, 15.0, 26.0, 20.0]
    times = [(2.0, 12.0), (15.0, 25.0), (26.0, 36.0), (20.0, 30.0)]
    assert count_handover_ticks(w, times, reached) == 2.0 + 3.0 + 1.0
    assert count_handover_ticks(w, [*times[:3], (30.0, 40.0)], [*reached[:3], 30.0]) == 30.0


def test_who_waits_for_a_link_has_lost_what_its_holder_lost() -> None:
    """b was reached late, yet before a let the link go: what b lost made nothing longer."""
    w = work(((7,), (7,)), ((), ()))
    assert count_handover_ticks(w, [(1.0, 11.0), (11.0, 21.0)], [1.0, 9.0]) == 1.0


def test_what_did_not_run_lost_nothing() -> None:
    w = work(((0,), (0,)), ((), (0,)))
    assert count_handover_ticks(w, [(0.5, 10.5), (-1.0, -1.0)], [0.5, -1.0]) == 0.5
    assert count_handover_ticks(work((), ()), [], []) == 0.0


@pytest.mark.parametrize("took_s", [0.0, 0.1, 0.4, 90.0])
def test_the_scale_follows_what_one_short_step_lost(monkeypatch: pytest.MonkeyPatch, took_s: float) -> None:
    """`took_s` seconds of it, whatever the scale: at most SHARE of a step that is not too short or long."""
    step_s, probed = 0.004, []

    def lost(clock: emulation.WallClock) -> float:
        return took_s / clock.tick_s

    def execute(w: EmulatedWork, clock: emulation.WallClock, threads: int) -> None:
        probed.append(clock.tick_s / TICK_S)

    monkeypatch.setattr(emulation, "execute", execute)
    monkeypatch.setattr(emulation.WallClock, "handed_over", lost)
    run = emulation.run_work(work(((0,),), ((),)), step_s, EmulationOptions(clock=WALL))
    slept_s = run.scale * step_s
    assert probed == pytest.approx([PROBE_S / step_s, run.scale])
    assert slept_s == pytest.approx(min(CHOSEN_S, max(PROBE_S, MARGIN * took_s / SHARE)))
    assert run.handed_over_s / step_s <= SHARE / MARGIN * 1.0001 or slept_s == pytest.approx(CHOSEN_S)
    given = emulation.run_work(work(((0,),), ((),)), step_s, EmulationOptions(clock=WALL, scale=100.0))
    assert given.scale == 100.0 and len(probed) == 3  # no probe for a scale that is given
