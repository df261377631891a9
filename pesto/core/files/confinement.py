"""Reading within folders: while a job runs, no path is opened but those of its uploads, whatever a file names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pesto.core.errors import UsageError
from pesto.core.files.json import shown

_OWN = str(Path(__file__).resolve().parents[2])
"""The folder of the package, which has the presets."""


class _Confinement:
    folders: tuple[str, ...] | None = None


@contextmanager
def confine_to(folder: Path) -> Iterator[None]:
    """Have the whole process read files of this folder and of the package alone."""
    before = _Confinement.folders
    _Confinement.folders = (os.path.abspath(folder), _OWN)  # noqa: PTH100  # links in the folder are the job's own
    try:
        yield
    finally:
        _Confinement.folders = before


def is_confined() -> bool:
    """Return whether files are read of some folders alone."""
    return _Confinement.folders is not None


def require_inside(path: Path) -> None:
    """UsageError for a file that may not be read; nothing is asked of the system for it."""
    if _Confinement.folders is None:
        return
    whole = os.path.abspath(path)  # noqa: PTH100
    if not any(whole.startswith(folder + os.sep) for folder in _Confinement.folders):
        raise UsageError.build(
            f"a job reads its uploads alone, and no {shown(path)}", remedy="upload the file, and give it as a blob"
        )
