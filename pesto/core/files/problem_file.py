"""Problem and schedule files (docs/reference/problem-file.md): `solvers.files.problem_json` knows their content."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pesto.core.errors import InputError
from pesto.core.files.disk import gzipped, read_bytes, write_atomic
from pesto.core.files.json import shown
from solvers.files import problem_json
from solvers.files.problem_json import LARGEST, Instance, ScheduleInstance

T = TypeVar("T")


def load_problem(path: str | os.PathLike[str]) -> Instance:
    """Read a problem, gzip or not; FileError when it cannot be read, InputError when its content is refused."""
    return _loaded(path, problem_json.loads_problem)


def load_schedule(path: str | os.PathLike[str]) -> ScheduleInstance:
    """Read a schedule, which nobody has checked; errors as `load_problem`."""
    return _loaded(path, problem_json.loads_schedule)


def save_problem(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Write a problem whole or not at all, as gzip when its name ends in .gz.

    FileError when it fails, InputError for a problem that is too large for a file.
    """
    _save(path, lambda: problem_json.dumps_problem(instance))


def save_schedule(answer: ScheduleInstance, path: str | os.PathLike[str]) -> None:
    """Write a schedule; see `save_problem`."""
    _save(path, lambda: problem_json.dumps_schedule(answer))


def _loaded(path: str | os.PathLike[str], parse: Callable[[bytes], T]) -> T:
    data = read_bytes(path, LARGEST)
    try:
        return parse(data)
    except ValueError as error:
        raise InputError(f"{shown(path)}: {shown(error, 2000)}") from error


def _save(path: str | os.PathLike[str], content: Callable[[], bytes]) -> None:
    try:
        data = content()
    except ValueError as error:
        raise InputError(f"{shown(path)} cannot be written: {shown(error, 2000)}") from error
    write_atomic(path, gzipped(data) if Path(path).suffix == ".gz" else data)
