"""Labels of functions that cut their batch say how, and are read back; what cannot be is no such label."""

import pytest

from pesto.source import Cut, cut_by, function_label

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
