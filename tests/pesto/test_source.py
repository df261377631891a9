"""Labels of functions that cut their batch say how, and are read back; what cannot be is no such label."""

import pytest

from pesto.core.source import Cut, cut_by, function_label, named_by

CUTS = [Cut(8), Cut(8, ()), Cut(3, (2, 2, 2, 1, 0, 0)), Cut(12, (11,)), Cut(12, (1, 1), 4), Cut(8, (), 2)]


@pytest.mark.parametrize("batch", [None, 64])
@pytest.mark.parametrize("cut", CUTS)
def test_labels_are_read_back(cut: Cut, batch: int | None) -> None:
    """Function, batch, pieces, and how late each variable is."""
    found = cut_by(function_label("m:f", batch, cut))
    assert found is not None and (found.function, found.batch, found.cut) == ("m:f", batch, cut)


def test_others_name_no_cut() -> None:
    """A function as it is, and more variables than there can be, which a file may claim."""
    label = function_label("m:f", 64, Cut(8, (1,)))
    assert label.endswith(" 1x1")
    assert all(cut_by(label.replace("each", f"every {turn}")) is None for turn in (0, 3))
    assert cut_by("function m:f") is None and cut_by(label.replace("1x1", "1x999999999")) is None


def test_numbers_that_python_refuses_to_read_name_no_source():
    """More than 4 300 digits, in each place of a label."""
    many = "9" * 5000
    for label in (f"model nmt small batch {many}", f"model nmt small, {many} micro-batches"):
        assert named_by(label) is None
    late = "batches, an update after"
    for label in (
        f"batch {many}, 4 micro-batches", f", {many} micro-batches", f", 4 {late} every {many}, weights late by 0",
        f", 4 {late} each, weights late by {many}x1", f", 4 {late} each, weights late by 1x{many}",
    ):  # fmt: skip
        assert cut_by(f"function m:f {label}".replace(" ,", ",")) is None
