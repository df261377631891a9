"""Performance profiles and means for the comparison of solvers over a set of problems. Nothing but numpy."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHIFT_S = 1.0
"""The shift of the geometric mean of running times, seconds."""
LEAST_S = 1e-3
"""Running times below this are taken as this: a ratio of two unmeasurably short times says nothing."""


def ratios(cost: Floats) -> Floats:
    """Performance ratios r[p, s] = cost[p, s] / min over s of cost[p, s] (Dolan and Moré 2002, section 2).

    cost has the shape problems x solvers, all >= 0, infinite where solver s has no answer to problem p: there the
    ratio is infinite too, and so it is in the whole row of a problem that nobody answers. 0/0 is 1.
    ValueError for negative costs and NaN.
    """
    if np.isnan(cost).any() or (cost < 0).any():
        raise ValueError("a cost is a number >= 0, infinite for none")
    best = cost.min(axis=1, initial=np.inf, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = cost / best
    ratio[np.isinf(cost)] = np.inf
    ratio[(cost == 0) & (best == 0)] = 1.0
    return ratio


def profile(ratio: Floats) -> tuple[Floats, Floats]:
    """The performance profile of one solver from its column of `ratios`: rho(tau) = |{p: r[p] <= tau}| / problems.

    Returns (tau, rho), the corners of this right-continuous step function: rho[k] holds from tau[k] up to tau[k + 1],
    the last one for ever; tau[0] is 1. What is missing to 1 at the end is the share of problems without an answer.
    ValueError without a problem.
    """
    if not len(ratio):
        raise ValueError("a profile needs a problem")
    finite = ratio[np.isfinite(ratio)]
    tau = np.unique(np.append(finite, 1.0))
    return tau, np.searchsorted(np.sort(finite), tau, side="right") / len(ratio)


def shifted_geometric_mean(values: Floats, shift: float = SHIFT_S) -> float:
    """exp(mean(ln(v + shift))) - shift (Achterberg 2007, appendix A): neither the easy nor the hard problems rule it.

    ValueError without a value, or when a value is below minus the shift.
    """
    if not len(values) or not (values + shift > 0).all():
        raise ValueError("a shifted geometric mean needs values above minus the shift")
    return float(np.exp(np.log(values + shift).mean()) - shift)
