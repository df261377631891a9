"""Temporary folders of a solver's process, which whoever ends the process finds again and removes."""

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

RUN = "PESTO_SOLVER_RUN"
"""The environment variable with a word for `folders`, by which who ends a process finds what it has left."""


def folders(run: str) -> str:
    """How the names of the temporary folders begin that a process makes whose RUN is this, "" where it has none."""
    return f"pesto-milp-{run}-"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder, which is removed at the end, also at one by SIGTERM.

    Only in the main thread can SIGTERM be caught; there it raises SystemExit meanwhile.
    """
    prefix = folders(os.environ.get(RUN, ""))
    with _term_raises(), tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _term_raises() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminated(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
