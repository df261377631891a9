"""Problem, schedule, chain and pattern files on disk; `solvers` knows their content (docs/reference/problem-file.md,
chain-file.md, pattern-file.md)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pesto.core.files.disk import gzipped, read_bytes, write_atomic
from pesto.core.files.json import refuse_document
from solvers.files import problem_json
from solvers.files.problem_json import Instance, ScheduleInstance
from solvers.pipelining import chain_json, pattern_json
from solvers.pipelining.chain_json import ChainInstance
from solvers.pipelining.pattern_json import PatternInstance

T = TypeVar("T")


def load_problem(path: str | os.PathLike[str]) -> Instance:
    """Read a problem, gzip or not. Raise FileError when it cannot be read, InputError when its content is refused."""
    return _parse(read_bytes(path, problem_json.LARGEST), path, problem_json.loads_problem)


def load_schedule(path: str | os.PathLike[str]) -> ScheduleInstance:
    """Read a schedule, which nobody has checked; errors as `load_problem`."""
    return _parse(read_bytes(path, problem_json.LARGEST), path, problem_json.loads_schedule)


def load_chain(path: str | os.PathLike[str]) -> ChainInstance:
    """Read a chain; errors as `load_problem`."""
    return _parse(read_bytes(path, chain_json.LARGEST), path, chain_json.loads_chain)


def load_pattern(path: str | os.PathLike[str]) -> PatternInstance:
    """Read a pattern; errors as `load_problem`.

    It need not be a valid schedule: `pesto.pipelining.pattern_certificate.verify_pattern` decides that.
    """
    return read_pattern(read_bytes(path, pattern_json.LARGEST), str(path))


def read_pattern(data: bytes, what: str) -> PatternInstance:
    """Read the pattern in a file's bytes, which `what` names in errors. Raise InputError when they are refused."""
    return _parse(data, what, pattern_json.loads_pattern)


def save_problem(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Write a problem whole or not at all, as gzip when its name ends in .gz.

    Raise FileError when that fails, InputError for a problem that is too large for a file.
    """
    _save(instance, path, problem_json.dumps_problem)


def save_schedule(answer: ScheduleInstance, path: str | os.PathLike[str]) -> None:
    """Write a schedule; see `save_problem`."""
    _save(answer, path, problem_json.dumps_schedule)


def save_chain(instance: ChainInstance, path: str | os.PathLike[str]) -> None:
    """Write a chain; see `save_problem`."""
    _save(instance, path, chain_json.dumps_chain)


def save_pattern(pattern: PatternInstance, path: str | os.PathLike[str]) -> None:
    """Write a pattern; see `save_problem`."""
    _save(pattern, path, pattern_json.dumps_pattern)


def _parse(data: bytes, name: str | os.PathLike[str], parse: Callable[[bytes], T]) -> T:
    try:
        return parse(data)
    except ValueError as error:
        raise refuse_document(name, error) from error


def _save(content: T, path: str | os.PathLike[str], dumps: Callable[[T], bytes]) -> None:
    try:
        data = dumps(content)
    except ValueError as error:
        raise refuse_document(f"{path} cannot be written", error) from error
    write_atomic(path, gzipped(data) if Path(path).suffix == ".gz" else data)
