"""Transfer times: the line is found again, never has a negative coefficient, and says how well it fits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.cluster import Path
from pesto.core.costs.network import PUBLISHED, fit, link_model, transfer_s
from pesto.core.errors import InputError, PestoError


def test_exact_line_is_recovered():
    """Samples on the paper's NVLink line give its coefficients back, with R² = 1."""
    size = np.array([0.0, 1e3, 1e5, 1e6, 1e8])
    found = fit(size, 40.771e-6 + size * 2.07573e-11)
    assert found.latency_s == pytest.approx(40.771e-6, rel=1e-9)
    assert found.s_per_byte == pytest.approx(2.07573e-11, rel=1e-9)
    assert (found.r2, found.samples) == (pytest.approx(1.0), 5)


def test_r2_by_hand():
    """Sizes 0, 1, 2 in 0, 2, 1 s: the line is 0.5 + 0.5 x, it leaves 1.5 of a total of 2, so R² = 0.25."""
    found = fit([0, 1, 2], [0, 2, 1])
    assert (found.latency_s, found.s_per_byte, found.r2) == pytest.approx((0.5, 0.5, 0.25))


def test_negative_latency_becomes_zero():
    """Sizes 1, 2, 3 in 0, 2, 4 s: the free line starts at -2, the one through zero has slope 16 / 14."""
    found = fit([1, 2, 3], [0, 2, 4])
    assert (found.latency_s, found.s_per_byte) == pytest.approx((0.0, 16 / 14))


def test_falling_times_become_constant():
    """Sizes 1, 2, 3 in 3, 2, 1 s: the mean of 2 leaves 2, the best line through zero 14 - 100 / 14 = 6.9."""
    found = fit([1, 2, 3], [3, 2, 1])
    assert (found.latency_s, found.s_per_byte, found.r2) == pytest.approx((2.0, 0.0, 0.0))
    assert fit([1, 2, 3], [2, 2, 2]).r2 == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_fit_is_the_best_of_all_non_negative_lines(seed):
    """No non-negative neighbour of the fitted line has a smaller squared error."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, 12)
    y = np.maximum(0, rng.uniform(-2, 2) + rng.uniform(-1, 2) * x + rng.normal(0, 1, 12))
    found = fit(x, y)
    best = ((y - found.latency_s - found.s_per_byte * x) ** 2).sum()
    for shift in rng.normal(0, 0.3, (200, 2)):
        b0, b1 = np.maximum(0, [found.latency_s + shift[0], found.s_per_byte + shift[1]])
        assert ((y - b0 - b1 * x) ** 2).sum() >= best - 1e-9


def test_robust_fit_ignores_queueing():
    """Nine of fifty transfers wait 10 to 30 ms: the robust line stays within 1 % of the rate, the plain one not."""
    size = np.linspace(1e5, 1e7, 50)
    seconds = 20e-6 + size * 8e-11
    seconds[::10] += 0.01
    seconds[:10:2] += 0.02
    plain, robust = fit(size, seconds), fit(size, seconds, robust=True)
    assert robust.s_per_byte == pytest.approx(8e-11, rel=0.01)
    assert abs(plain.s_per_byte / 8e-11 - 1) > 0.1
    assert robust.r2 <= plain.r2


@pytest.mark.parametrize(
    ("size", "seconds", "message"),
    [
        ([1, 2], [1, 2], "2 samples are too few"),
        ([5, 5, 5], [1, 2, 3], "all 3 samples are of 5 bytes"),
        ([1, 2, 3], [1, 2], "one time per size"),
        ([1, 2, 3], [1, -2, 3], "sample 1 "),
        ([1, 2, 3], [1, 2, float("nan")], "sample 2 "),
        ([1, float("inf"), 3], [1, 2, 3], "sample 1 "),
    ],
)
def test_useless_samples_are_refused(size, seconds, message):
    """Too few, constant, unequal, negative and not finite samples each get their own line."""
    with pytest.raises(InputError, match=message):
        fit(size, seconds)


_number = st.floats(0, 1e12)


@given(st.lists(st.tuples(_number, _number), max_size=12), st.booleans())
def test_any_samples_give_a_usable_line(samples, robust):
    """Any samples give finite non-negative coefficients and an R² of at most 1, or a PestoError."""
    try:
        found = fit([s[0] for s in samples], [s[1] for s in samples], robust=robust)
    except PestoError:
        return
    assert 0 <= found.latency_s < np.inf
    assert 0 <= found.s_per_byte < np.inf
    assert found.r2 <= 1 + 1e-9


def test_transfer_times_by_hand():
    """2 us + bytes / (1 GB/s), 3 us at least: 0, 500, 1000 and 8000 bytes in 3, 3, 3 and 10 us."""
    path = Path(latency_s=2e-6, s_per_byte=1e-9, floor_s=3e-6)
    found = transfer_s(path, np.array([[0, 500], [1000, 8000]]))
    assert found == pytest.approx(np.array([[3e-6, 3e-6], [3e-6, 1e-5]]))


def test_published_models():
    """The four published models exist; a wrong name suggests the right one."""
    assert len(PUBLISHED) == 4
    assert link_model("paper-pcie-gpu-gpu").floor_s == 15e-6
    with pytest.raises(InputError, match="did you mean paper-pcie-gpu-gpu"):
        link_model("paper-pci-gpu-gpu")
