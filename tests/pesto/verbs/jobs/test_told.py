"""What is said of an error that ends something."""

import pytest

from pesto.core.errors import Exit, UsageError, told


def test_what_is_said_is_parted_from_the_remedy() -> None:
    """At the last dash; who says no remedy has none."""
    found = told(UsageError("a - b is wrong - leave it out"), None)
    assert (found.what, found.remedy, found.exit_code) == ("a - b is wrong", "leave it out", Exit.USAGE)
    assert (told(KeyboardInterrupt(), None).remedy, told(KeyboardInterrupt(), Exit.TERMINATED).exit_code) == (None, 143)
    assert told(ZeroDivisionError("x"), Exit.INTERRUPTED).exit_code == Exit.BUG


@pytest.mark.parametrize("chained", [True, False])
def test_an_error_that_comes_of_an_interruption_is_one(chained) -> None:
    """As where numpy is struck within a comparison: with the interruption as its cause, or as its context."""
    with pytest.raises(TypeError) as struck:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interruption:
            if chained:
                raise TypeError("cannot compare") from interruption
            raise TypeError("cannot compare")  # noqa: B904
    assert told(struck.value, Exit.TERMINATED).exit_code == 143
