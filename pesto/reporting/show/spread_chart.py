"""How much the times of ops vary, as the paper's curve (Pesto, Middleware '21, Fig 4a); needs matplotlib."""

import numpy as np

from pesto.core.costs.measured import Profile, spread_quantiles
from pesto.reporting.show.drawing import BLUE, GREY, drawing_style, figure_bytes

LEVELS = tuple(np.linspace(0.0, 1.0, 201).tolist())
"""Shares of the ops at which the curves are drawn."""


def draw(profile: Profile, form: str) -> bytes:
    """The share of ops of 10 us or more whose normalised deviation is at most so much; the same bytes each time.

    Of all samples, and without the slowest tenth. Without such an op the axes are empty.
    """
    from matplotlib.figure import Figure as Canvas

    with drawing_style("pesto profile"):
        canvas = Canvas(figsize=(6.0, 4.0), layout="constrained")
        axis = canvas.subplots()
        for raw, colour, label in ((False, BLUE, "without the slowest tenth"), (True, GREY, "all samples")):
            spread = spread_quantiles(profile, LEVELS, raw=raw)
            if spread is not None:
                axis.plot(spread, LEVELS, color=colour, label=label)
        if axis.lines:
            axis.legend(frameon=False, fontsize=8)
        axis.set_xlim(left=0.0)
        axis.set_ylim(0.0, 1.01)
        axis.set_xlabel("standard deviation / mean")
        axis.set_ylabel("share of ops of 10 µs or more")
        axis.set_title(f"{profile.source} on {profile.device}", loc="left", fontsize=9)
        return figure_bytes(canvas, form, "pesto profile")
