"""Options and limits of an emulation; imported without TensorFlow."""

from dataclasses import dataclass

from pesto.core.errors import UsageError
from pesto.core.graph import SESSION
from pesto.core.plans.plan import Plan
from pesto.core.quantities import duration

WHAT = (
    "an emulation: sleeps predicted times in TensorFlow's executor; evidence about order, overlap and links, none "
    "about hardware or costs"
)
NOMINAL, WALL = "nominal", "wall"
DEVICES = 16
"""Most accelerators, or CPUs where there are no others, of a plan that is emulated."""
SHARE = 0.02
"""Share of the step that handing over from function to function may take at the scale that is chosen."""
PROBE_S = 2.0
"""Seconds of the step in which handing over is measured, before a scale is chosen; no step is shorter then."""
MARGIN = 1.5
"""Safety factor on the handover time of the probe: in a longer step, sleeping cores wake later."""
CHOSEN_S, MOST_S = 120.0, 600.0
"""Seconds of one emulated step at most: at the scale that is chosen, and at one that is given."""
LEAST = 1e-6
"""Seconds slept for each predicted second at least: with fewer no clock tells ticks apart."""
THREADS = 512
"""Threads of the executor at most; a function that waits for its processor or links holds one."""
PLANNED, REACHED = "planned", "reached"
"""Tie rules for requests at one instant: in the simulator's order, or in the order the executor reached them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationOptions:
    """Options of an emulation."""

    clock: str = NOMINAL
    """NOMINAL, where nobody sleeps and handing over costs nothing, or WALL."""
    scale: float | None = None
    """Seconds slept for each predicted second; None chooses."""
    way: str = SESSION
    """SESSION, GRAPHDEF as `pesto apply` writes it, or FUNCTION: how the plan is enforced."""
    ties: str = PLANNED
    """Tie rule, PLANNED or REACHED (`pesto.tf.emulate.clocks`); for the nominal clock only."""

    def __post_init__(self) -> None:
        """Raise UsageError for options that do not go together."""
        if self.scale is not None and (self.clock == NOMINAL or not LEAST <= self.scale < float("inf")):
            raise UsageError.build(
                f"emulate: a scale is a positive number for the wall clock, at least {LEAST:g}",
                remedy="leave it out, or take the clock wall",
            )
        if self.ties != PLANNED and self.clock == WALL:
            raise UsageError.build(
                "emulate: ties are for the nominal clock; the wall clock has none", remedy="leave ties out"
            )

    def too_long(self, step_s: float) -> UsageError | None:
        """Return the error of a step that is predicted to take too long to be emulated; None for any other."""
        if self.scale is None or self.scale * step_s <= MOST_S:
            return None
        took = f"a step of {duration(step_s)} takes {self.scale * step_s:.0f} s at scale {self.scale:g}"
        remedy = f"give a scale below {MOST_S / step_s:.3g}, or leave it out"
        return UsageError.build(f"{took}, at most {MOST_S:.0f} s are emulated", remedy=remedy)


def check_size(plan: Plan) -> None:
    """Raise UsageError for a plan of more than DEVICES accelerators, or CPUs where it has no others."""
    names = set(plan.lane_device)
    devices = len([name for name in names if not name.startswith("cpu:")]) or len(names)
    if devices > DEVICES:
        raise UsageError.build(
            f"emulate: the plan is for {devices} devices, and an emulation has at most {DEVICES}",
            remedy="plan for a smaller cluster",
        )
