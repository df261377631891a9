"""What all pictures share: settings that hold inside alone, named in one place."""

from pathlib import Path

import pytest

import pesto.reporting.show
from pesto.reporting.show import drawing

ROOM = Path(pesto.reporting.show.__file__).parent


def test_settings_hold_inside_alone() -> None:
    """Text is drawn as it is; sizes are those that are given; afterwards all is as before."""
    mpl = pytest.importorskip("matplotlib")
    names = ("svg.hashsalt", "svg.fonttype", "text.parse_math", "font.size")
    before = [mpl.rcParams[name] for name in names]
    with drawing.drawing_style("a test", font_size=3.5):
        assert [mpl.rcParams[name] for name in names] == ["a test", "path", False, 3.5]
    assert [mpl.rcParams[name] for name in names] == before


def test_no_picture_has_settings_of_its_own() -> None:
    """What makes pictures the same bytes each time is said once."""
    assert [path.name for path in sorted(ROOM.rglob("*.py")) if "hashsalt" in path.read_text()] == ["drawing.py"]
