"""Calibrations: known links are found again, sizes that were held out are predicted, and what cannot be is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.costs.calibration import (
    SIZES,
    Samples,
    calibrate,
    convex_lines,
    fits_by_type,
    half_difference,
    low_quantile,
)
from pesto.core.costs.network import transfer_s
from pesto.core.errors import Exit, InputError, NothingFoundError, PestoError

K = np.array(SIZES)


def made(seconds, *, noise=0.0, repeats=20, seed=1, **other):
    """Samples of a function of bytes; most are late by `noise` on average, as those that waited for others are."""
    rng = np.random.default_rng(seed)
    late = 1 + noise * rng.exponential(size=(len(K), repeats))
    alone = np.array([seconds(size) for size in SIZES])[:, None] * late
    return Samples(source="gpu:0", target="gpu:1", sizes=K, alone=alone, **other)


def line(latency, gb_s):
    return lambda size: latency + size / (gb_s * 1e9)


def test_a_line_is_found_and_held_out_sizes_are_predicted():
    """20 us and 10 GB/s: one line, exactly, though every second size was held out."""
    found = calibrate(made(line(20e-6, 10)))
    assert found.lines == ((pytest.approx(20e-6), pytest.approx(1e-10)),)
    assert (found.latency_s, found.s_per_byte) == (pytest.approx(20e-6), pytest.approx(1e-10))
    assert found.error < 1e-5 and found.line_error < 1e-5 and found.apart == 0
    assert found.fitted == (4, 64, 1024, 4**7, 4**9, 4**11, 4**13)
    assert [size for size, _, _ in found.held_out] == [16, 256, 4096, 4**8, 4**10, 4**12]


def test_sizes_of_any_number_keep_the_smallest_and_the_largest_among_the_fitted():
    """What is held out lies between them; with an even number, the two smallest are both fitted."""
    samples = made(line(20e-6, 10))
    for count in (6, 7, 12):
        some = Samples(source="a", target="b", sizes=K[:count], alone=samples.alone[:count])
        found = calibrate(some)
        assert found.fitted[0] == 4 and found.fitted[-1] == 4**count
        assert sorted([*found.fitted, *(size for size, _, _ in found.held_out)]) == K[:count].tolist()


def bent(size):
    """5 us to some kB, then 2 us and 5 GB/s, and no more than 1 GB/s for what fits no buffer: the longest of three."""
    return max(5e-6, 2e-6 + size / 5e9, size / 1e9)


def test_a_transfer_that_bends_takes_several_lines():
    """On sizes that neither saw, one line is off ten times as much as the pieces at least."""
    found = calibrate(made(bent))
    assert 2 <= len(found.lines) <= 3
    assert found.error < 0.05 and found.line_error > 10 * found.error
    slopes = [slope for _, slope in found.lines]
    assert slopes == sorted(slopes) and found.s_per_byte == pytest.approx(1e-9, rel=0.02)


def test_the_path_takes_what_was_predicted():
    """The problem's function of bytes gives the held-out predictions back."""
    found = calibrate(made(bent))
    sizes, _, said = zip(*found.held_out, strict=True)
    assert transfer_s(found.path(), np.array(sizes)) == pytest.approx(said)
    assert found.path((3,), "why").links == (3,) and found.path((3,), "why").source == "why"


def test_bytes_that_cost_nothing_are_free():
    """1.5 us whatever the size, up to a few per cent of noise: no rate is made of that."""
    found = calibrate(made(lambda _: 1.5e-6, noise=0.1, repeats=40))
    assert found.s_per_byte == 0 and found.latency_s == pytest.approx(1.5e-6, rel=0.05)
    assert "bytes free" in str(found)


def test_samples_that_waited_for_others_do_not_count():
    """Three of four samples take up to many times as long; the quickest twentieth are those of a link at rest."""
    found = calibrate(made(line(20e-6, 10), noise=0.5, repeats=100))
    assert found.lines[0][0] == pytest.approx(20e-6, rel=0.15) and found.error < 0.15
    assert str(found).endswith("apart") and "sizes held out" in str(found)


def test_noise_makes_no_pieces():
    """A further line has to be worth it: of 30 noisy lines one at most gets a second."""
    several = [len(calibrate(made(line(20e-6, 10), noise=0.05, seed=s)).lines) > 1 for s in range(30)]
    assert sum(several) <= 1


@pytest.mark.parametrize(
    ("both", "twice", "shares"),
    [(1.05, 1.1, "nothing"), (1.05, 1.9, "one way"), (1.9, 2.0, "both ways"), (1.6, 1.2, "nothing")],
)
def test_what_two_transfers_share(both, twice, shares):
    """Two of one way at once that take twice as long share it; so do both ways where that holds of these."""
    alone = made(line(20e-6, 10)).alone
    samples = made(line(20e-6, 10), both=alone * both, twice=alone * twice)
    assert calibrate(samples, samples).shares == shares
    assert calibrate(made(line(20e-6, 10))).shares == ""


def test_free_bytes_share_nothing():
    """Two at once may wait for a processor, which is no link."""
    alone = made(lambda _: 2e-6).alone
    assert calibrate(made(lambda _: 2e-6, both=3 * alone, twice=3 * alone)).shares == "nothing"


def test_samples_that_do_not_settle_are_refused():
    """The second half takes twice as long as the first: 100 % apart, exit code 5."""
    alone = made(line(20e-6, 10)).alone.copy()
    alone[:, 10:] *= 2
    with pytest.raises(NothingFoundError, match=r"does not settle, two halves .* 100\.0% apart .* - measure") as caught:
        calibrate(Samples(source="a", target="b", sizes=K, alone=alone))
    assert caught.value.exit_code == Exit.NOTHING
    assert half_difference(alone) == pytest.approx(1.0)
    alone[:, 10:] *= 1.2 / 2
    assert calibrate(Samples(source="a", target="b", sizes=K, alone=alone)).apart == pytest.approx(0.2)


def test_transfers_that_take_no_time_are_refused():
    """What is left of a chain is less than the clock tells."""
    with pytest.raises(NothingFoundError, match="4 bytes take no time that can be told from none"):
        calibrate(Samples(source="a", target="b", sizes=K, alone=np.zeros((len(K), 4))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": K[:5], "alone": np.ones((5, 2))}, "5 sizes are too few"),
        ({"sizes": K[::-1]}, "not in order"),
        ({"sizes": [-4, *K[1:]]}, "not in order"),
        ({"sizes": [4, *K[:-1]]}, "not in order"),
        ({"alone": np.ones((13, 1))}, "measure each twice or more"),
        ({"alone": np.ones((12, 4))}, "measure each twice or more"),
        ({"alone": np.ones(13)}, "measure each twice or more"),
        ({"alone": np.full((13, 4), -1e-6)}, "4 bytes took -1e-06 s - leave such a sample out"),
        ({"alone": np.full((13, 4), np.nan)}, "4 bytes took nan s"),
        ({"both": np.full((13, 4), np.inf)}, "4 bytes took inf s"),
    ],
)
def test_samples_that_cannot_be_are_refused(change, message):
    """One line each, naming the pair."""
    with pytest.raises(InputError, match=f"a to b: .*{message}") as caught:
        Samples(**{"source": "a", "target": "b", "sizes": K, "alone": np.ones((13, 4))} | change)
    assert "\n" not in str(caught.value)


def test_the_quickest_twentieth_by_hand():
    """Of twenty the smallest, of forty the second smallest."""
    assert low_quantile(np.arange(20.0, 0, -1)[None]).tolist() == [1.0]
    assert low_quantile(np.arange(40.0, 0, -1)[None]).tolist() == [2.0]


def test_one_line_for_each_type_of_transfer():
    """Two pairs of GPUs of one line give that line and R² 1; of two lines something between, and less."""
    there = calibrate(made(line(20e-6, 10)))
    back = replace(there, source="gpu:1", target="gpu:0")
    host = replace(there, source="cpu:0", target="gpu:0")
    found = fits_by_type([there, back, host])
    assert list(found) == ["gpu to gpu", "cpu to gpu"]
    assert (found["gpu to gpu"].samples, found["cpu to gpu"].samples) == (2 * len(K), len(K))
    for each in found.values():
        assert (each.latency_s, each.s_per_byte) == (pytest.approx(20e-6), pytest.approx(1e-10))
        assert each.r2 == pytest.approx(1.0)
    slow = replace(calibrate(made(line(20e-6, 5))), source="gpu:1", target="gpu:0")
    mixed = fits_by_type([there, slow])["gpu to gpu"]
    assert 1e-10 <= mixed.s_per_byte <= 2e-10 and 0.5 < mixed.r2 < 0.95


@given(st.lists(st.floats(1e-9, 1e3), min_size=4, max_size=9))
def test_lines_of_any_points_are_a_convex_cost(seconds):
    """Never negative, the flattest first, none of them nowhere the longest."""
    lines = convex_lines(K[: len(seconds)], np.array(seconds))
    assert 1 <= len(lines) <= 3
    assert all(0 <= x < np.inf for one in lines for x in one)
    latencies, slopes = zip(*lines, strict=True)
    assert list(slopes) == sorted(set(slopes)) and list(latencies) == sorted(set(latencies), reverse=True)


@given(st.integers(0, 2**32), st.floats(0, 3))
def test_any_noise_gives_a_calibration_or_a_reason(seed, noise):
    """Never another error, and a prediction for every size that was held out."""
    try:
        found = calibrate(made(line(5e-6, 3), noise=noise, seed=seed))
    except PestoError as error:
        assert "\n" not in str(error)
    else:
        assert len(found.held_out) == 6 and np.isfinite(found.error)
