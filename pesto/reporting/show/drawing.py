"""Shared drawing code: formats, colours, rendering of figures, and a check for matplotlib."""

import io
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
DPI = 144
INK = "#1f2328"
BLUE, RED, GREY = "#0072b2", "#d55e00", "#7f7f7f"
COLOURS = (BLUE, RED, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", GREY)
"""Okabe and Ito's colours for all kinds of colour vision, less those too light or dark for one of two grounds."""


def available() -> bool:
    """Return True if matplotlib (the extra `study`) is installed."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        return False
    return True


def drawing_style(made_by: str, **more: float) -> AbstractContextManager[None]:
    """Inside, text is taken as it is and drawn as paths, and an SVG's names follow from what makes the picture.

    more: sizes, `font_size` for matplotlib's font.size.
    """
    import matplotlib as mpl

    sizes = {name.replace("_", ".", 1): value for name, value in more.items()}
    look: dict[Any, Any] = {"svg.hashsalt": made_by, "svg.fonttype": "path", "text.parse_math": False}
    return mpl.rc_context({**look, **sizes})


def figure_bytes(figure: "Figure", form: str, made_by: str) -> bytes:
    """The figure in one of FORMATS, with the name of what made it; the same figure gives the same bytes."""
    still = {"Date": None, "Creator": made_by} if form == "svg" else {"Software": made_by}
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=DPI, metadata=still)
    return out.getvalue()
