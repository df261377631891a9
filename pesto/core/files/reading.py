"""The phases of reading a program, reported to whoever shows them.

Rooms below the command line report what they do; where nobody shows it, as in a notebook, nothing comes of it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

ShowPhase = Callable[[str], None]
"""Shows the phase that begins."""
OpenDisplay = Callable[[], AbstractContextManager[ShowPhase]]
"""Opens what shows the phases of one reading, and is closed when the reading ends."""

_OPEN: ContextVar[OpenDisplay | None] = ContextVar("open", default=None)
_SHOW: ContextVar[ShowPhase | None] = ContextVar("show", default=None)


@contextmanager
def phases_shown_by(open_display: OpenDisplay) -> Iterator[None]:
    """Show the phases of each reading in the block on a display of its own."""
    token = _OPEN.set(open_display)
    try:
        yield
    finally:
        _OPEN.reset(token)


@contextmanager
def reading(phase: str) -> Iterator[None]:
    """Read a program in the block, beginning with `phase`; a reading inside another is a phase of that."""
    open_display = _OPEN.get()
    if open_display is None or _SHOW.get() is not None:
        report_phase(phase)
        yield
        return
    with open_display() as show:
        token = _SHOW.set(show)
        try:
            show(phase)
            yield
        finally:
            _SHOW.reset(token)


def report_phase(phase: str) -> None:
    """Report that `phase` of the current reading begins; does nothing while no program is read."""
    show = _SHOW.get()
    if show is not None:
        show(phase)
