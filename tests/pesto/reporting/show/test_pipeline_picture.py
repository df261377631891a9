"""The picture of a pipeline on many devices, and that of the least period over memory: what can be told apart there."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex

from benchmarks.chain_families import make_case
from pesto.pipelining import schedules
from pesto.reporting.show import pipeline_chart
from solvers.pipelining.any_allocation import back_to_back
from solvers.pipelining.chain import SEND_FORWARD, Allocation, Machines


@pytest.fixture(name="figure")
def _figure(monkeypatch):
    """The figure that is drawn."""
    kept = []
    monkeypatch.setattr(pipeline_chart, "figure_bytes", lambda canvas, *_: kept.append(canvas) or b"")
    return lambda draw, *words: (draw(*words, "png"), kept.pop())[1]


def dashed(axis):
    """Where a period begins and ends."""
    return [line.get_xdata()[0] for line in axis.lines if line.get_linestyle() == "--" and len(line.get_xdata()) == 2]


@pytest.mark.parametrize("devices", [4, 16])
def test_many_thin_boxes_have_a_period_drawn_large(figure, devices):
    """A step of 8 batches of which each takes some 40 periods: one is full, and what is in it has numbers."""
    chain = make_case("random-chain", 1, layers=42, devices=devices).chain
    at = Allocation(device=np.arange(42) % devices, devices=devices)
    asked = schedules.ChainRequest(chain=chain, machines=Machines.alike(devices))
    made = replace(schedules._measured(asked, "free", at, back_to_back(chain, at)), periodic=True)
    top, large, below = figure(pipeline_chart.draw_pipeline, asked, made).axes
    periods = [dashed(axis) for axis in (top, large, below)]
    assert periods[0] == periods[1] == periods[2] and np.diff(periods[0]) == [made.pattern.T]
    begin, end = periods[0]
    low, high = large.get_xlim()
    assert low < begin < end < high < low + 2 * (end - begin)
    # A device is never idle for long here: most of what it does in the period has its batch's number.
    named = [text for text in large.texts if begin <= text.get_position()[0] <= end]
    assert len(named) > 42
    # Every batch that is drawn ends: the flush is there, and so is the last one's beginning after the period.
    held = next(line for line in below.lines if line.get_label() == "device 0")
    assert top.get_xlim()[1] == held.get_xdata()[-1] > end
    lines = below.get_legend().get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) == devices
    sends = made.pattern.resource[made.pattern.kind == SEND_FORWARD]
    bands = [patch for patch in top.patches if to_hex(patch.get_facecolor()) == pipeline_chart._BAND]
    assert len(bands) == len(np.unique(sends)) > 0


def test_lines_of_equal_values_do_not_hide_each_other(figure):
    """Each is narrower than those beneath it."""
    at = dict.fromkeys(("fixed", "joint", "thinned", "free", "bound"), Fraction(5))
    drawn = figure(pipeline_chart.draw_curve, [(1, at), (2, at)], "equal").axes[0].lines
    wide = [line.get_linewidth() for line in sorted(drawn, key=lambda line: line.zorder)]
    assert len(wide) == 5 and all(a > b for a, b in pairwise(wide))


@pytest.mark.parametrize(("most", "size"), [(3 * 2**30, "GiB"), (3 * 2**20, "MiB"), (3 * 2**10, "KiB"), (3, "KiB")])
def test_bytes_have_a_unit_that_suits_them(most, size):
    """Of steps, whose bytes are told in GiB; those of a chain's file stay bytes."""
    assert pipeline_chart.OF_STEPS.legible(most).size == size
    assert pipeline_chart.NATURAL.legible(most) == pipeline_chart.NATURAL
