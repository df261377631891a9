"""Numbers and names for people: in the unit of their size, and nothing rounded to what it is not."""

import pytest

from pesto.core.quantities import change, duration, durations, percent, plural, shorten, size


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.028, "2.8%"), (0.00004, "0.004%"), (4.2e-9, "0.00000042%"), (0.0, "0%"), (1.0, "100.0%"), (0.99999, "99.9%")],
)
def test_only_nothing_is_zero_percent_and_only_all_is_a_hundred(share, text) -> None:
    assert percent(share) == text


def test_a_share_of_either_sign_keeps_its_digits() -> None:
    assert [percent(-0.0004), percent(-0.9999), change(0.021), change(-0.5), change(0.0)] == [
        "-0.04%", "-99.9%", "+2.1%", "-50.0%", "0%",
    ]  # fmt: skip


def test_times_and_bytes_are_in_the_unit_of_their_size() -> None:
    """What is compared with each other has the unit of the longest."""
    assert [duration(s) for s in (0.0, 1e-6, 0.48252, 12.5)] == ["0.00 ms", "1.00 µs", "482.52 ms", "12.50 s"]
    assert durations([0.0005, 0.002]) == ["0.500 ms", "2.000 ms"] and durations([]) == []
    assert durations([95e-6, 107e-6, 1.07e-3]) == ["0.0950 ms", "0.1070 ms", "1.0700 ms"]
    assert durations([0.0, 0.2828, 0.4]) == ["0.00 ms", "282.80 ms", "400.00 ms"]
    assert [size(b) for b in (0, 1023, 2**10, 3 * 2**20, 5 * 2**30)] == [
        "0 B", "1023 B", "1.00 KiB", "3.00 MiB", "5.00 GiB",
    ]  # fmt: skip


def test_a_long_name_keeps_its_ends() -> None:
    """Exactly as long as it may be; a short one is whole."""
    name = "gradients/" + "x" * 100 + "/MatMul_1"
    assert shorten("short") == "short"
    assert (
        len(shorten(name, 40)) == 40
        and shorten(name, 40).startswith("gradients/")
        and shorten(name).endswith("MatMul_1")
    )


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [(0, ("op",), "0 ops"), (1, ("op",), "1 op"), (2, ("op",), "2 ops"), (1, ("box", "boxes"), "1 box"),
     (3, ("box", "boxes"), "3 boxes")],
)  # fmt: skip
def test_one_of_something_is_not_called_many(count: int, words: tuple[str, ...], text: str) -> None:
    """Only one is without the ending."""
    assert plural(count, *words) == text
