"""Kinds of links: rates follow from lanes and shares, and each says where it comes from."""

import pytest

from pesto.core.costs.network import PUBLISHED, WIRES, link_model
from pesto.core.errors import InputError


@pytest.mark.parametrize(
    ("name", "lanes", "gb_s"),
    [
        ("nvlink2", 2, 2 * 25 * 0.958),  # what the DGX-1's bonded pairs were measured to reach: 47.9
        ("nvswitch-a100", None, 600 / 2 * 0.864),  # 518 of 600 both ways
        ("nvswitch-h100", None, 18 * 25 * 0.836),  # 376 of 450
        ("nvswitch-b200", None, 18 * 50 * 0.836),
        ("pcie3", None, 16 * 8e9 * (128 / 130) / 8 / 1e9 * 0.795),  # 8 GT/s a lane, one bit a transfer
        ("pcie5", 8, 8 * 32e9 * (128 / 130) / 8 / 1e9 * 0.862),
        ("pcie6", None, 16 * 64e9 * (242 / 256) / 8 / 1e9 * 0.862),
        ("infiniband-ndr", None, 400 / 8 * 0.954),
        ("ethernet-25g", None, 25 / 8 * 0.94),
    ],
)
def test_rates_by_hand(name, lanes, gb_s):
    """Lanes times the rate of one times the share that is reached."""
    assert 1e-9 / link_model(name, lanes).s_per_byte == pytest.approx(gb_s, rel=1e-12)


def test_each_generation_is_quicker_than_the_one_before():
    """As many lanes of a later one carry more; NVLink 2 to 4 have links of one rate, and more of them."""
    families = (
        [f"pcie{k}" for k in (3, 4, 5, 6)],
        [f"nvswitch-{gpu}" for gpu in ("v100", "a100", "h100", "b200")],
        [f"infiniband-{rate}" for rate in ("edr", "hdr", "ndr", "xdr")],
    )
    for family in families:
        times = [link_model(name).s_per_byte for name in family]
        assert times == sorted(times, reverse=True) and len(set(times)) == len(times)


def test_every_link_says_where_it_comes_from():
    """And nothing beyond what its wire carries, nor a latency of nothing."""
    for name, wire in WIRES.items():
        model = link_model(name)
        assert wire.source and wire.source in model.source and "reached" in model.source
        assert 0 < wire.share <= 1 and model.latency_s > 0
    assert all(model.source for model in PUBLISHED.values())


def test_what_was_fitted_has_no_lanes():
    """The paper's coefficients are those of its boxes; a wrong name is answered with the nearest."""
    with pytest.raises(InputError, match="was fitted to one box - drop lanes, or name one of nvlink2"):
        link_model("paper-nvlink-gpu-gpu", 2)
    with pytest.raises(InputError, match="did you mean pcie4"):
        link_model("pcie-4")
