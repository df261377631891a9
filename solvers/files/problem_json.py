"""Problems and schedules as JSON that other programs can read and write (docs/reference/problem-file.md)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from solvers.arrays import Ints
from solvers.files.json_text import DocumentKind, bounded, check_label, decode_document
from solvers.footprint import Footprint
from solvers.problem import MOST, Problem
from solvers.schedule import Schedule

LARGEST = 1 << 30
"""Greatest number of bytes of text."""
MOST_NUMBERS = 1 << 24
"""Greatest number of numbers, or of arrays, in one text."""
MOST_LABEL = 1 << 24
"""Beyond every number of a group and a link: solvers count up to them."""

_Size = Annotated[int, msgspec.Meta(ge=0, le=MOST_LABEL)]
_Number = Annotated[int, msgspec.Meta(ge=-1, le=MOST)]
_Ticks = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
_Index = Annotated[int, msgspec.Meta(ge=-1, lt=MOST_LABEL)]
_Digest = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
_PROBLEM = DocumentKind(format="pesto-problem", version=1, help="give a file of that format")
_SCHEDULE = DocumentKind(format="pesto-schedule", version=1, help="give a file of that format")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """A problem with what else its file says of it. ValueError for a name that does not fit on a line."""

    problem: Problem
    name: str = ""
    """A name for people, one line."""
    optimum: int | None = None
    """The least makespan in ticks, where it is known by construction."""
    ticks_per_second: int | None = None
    """Ticks in a second, if ticks have a meaning beyond the problem."""

    def __post_init__(self) -> None:
        """Validate what is not the problem's own."""
        check_label(self.name, "$.name")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleInstance:
    """A schedule with what else its file says of it: claims, which nobody has checked."""

    schedule: Schedule
    problem: str = ""
    """`fingerprint` of the problem it belongs to; "" where the file does not say."""
    solver: str = ""
    status: str = ""
    lower_bound: int = 0
    bound_by: str = ""
    """Source of the lower bound."""

    def __post_init__(self) -> None:
        """ValueError for text that does not fit on a line, and for a bound above the makespan."""
        for name in ("solver", "status", "bound_by"):
            check_label(getattr(self, name), f"$.{name}")
        if self.lower_bound > self.schedule.makespan:
            above = f"{self.lower_bound} is above the makespan {self.schedule.makespan}"
            raise ValueError(f"$.lower_bound: {above} - correct one of them")


class _Sizes(msgspec.Struct, kw_only=True):
    tasks: _Size
    devices: _Size
    locations: _Size
    edges: _Size
    payloads: _Size
    path_classes: _Size
    path_links: _Size


class _Lives(msgspec.Struct, kw_only=True):
    size: list[_Number]
    maker: list[_Index]
    passes: list[_Index]
    reuses: list[_Index]
    read_buffer: list[_Index]
    read_by: list[_Index]
    read_payload: list[_Index]
    scratch: list[_Number]


class _Problem(msgspec.Struct, kw_only=True):
    format: str
    format_version: int
    name: str = ""
    fingerprint: _Digest = ""
    optimum: _Ticks | None = None
    ticks_per_second: Annotated[int, msgspec.Meta(ge=1, le=10**18)] | None = None
    sizes: _Sizes
    duration: list[list[_Number]]
    location: list[_Index]
    memory: list[_Number]
    capacity: list[_Number]
    src: list[_Index]
    dst: list[_Index]
    payload: list[_Index]
    producer: list[_Index]
    transfer: list[list[_Number]]
    path_class: list[list[_Index]]
    path_links: list[list[list[_Index]]]
    group: list[_Index]
    lives: _Lives | None = None


class _Schedule(msgspec.Struct, kw_only=True):
    format: str
    format_version: int
    problem: _Digest = ""
    solver: str = ""
    status: str = ""
    makespan: _Ticks | None = None
    lower_bound: _Ticks = 0
    bound_by: str = ""
    device: list[_Index]
    start: list[_Ticks]
    finish: list[_Ticks]
    sent_payload: list[_Index]
    sent_to: list[_Index]
    sent_start: list[_Ticks]
    sent_finish: list[_Ticks]


def fingerprint(problem: Problem) -> str:
    """Return the SHA-256 of every column: its name and sizes, "duration:3,2;", then its int64, little-endian.

    Where there are lives, their columns follow: "lives.size:3;".
    """
    digest = hashlib.sha256()
    lives = {f"lives.{name}": column for name, column in _lives_of(problem).items()}
    for name, column in (_columns(problem) | lives).items():
        digest.update(f"{name}:{','.join(map(str, column.shape))};".encode())
        digest.update(column.astype("<i8", copy=False).tobytes())
    return digest.hexdigest()


def dumps_problem(instance: Instance) -> bytes:
    """Return the file of a problem: equal instances give equal bytes; raise ValueError where none could be read."""
    p = instance.problem
    for name, column in (("group", p.group), ("path_links", p.path_links)):
        if column.max(initial=-1) >= MOST_LABEL:
            raise ValueError(f"{name}: {column.max()} is beyond {MOST_LABEL - 1} - number from 0 on")
    sizes = {
        "tasks": p.tasks, "devices": p.devices, "locations": p.locations, "edges": p.edges, "payloads": p.payloads,
        "path_classes": p.transfer.shape[1], "path_links": p.path_links.shape[2],
    }  # fmt: skip
    known = {"optimum": instance.optimum, "ticks_per_second": instance.ticks_per_second}
    return _encoded(_PROBLEM, {
        "name": instance.name, "fingerprint": fingerprint(p),
        **{key: value for key, value in known.items() if value is not None}, "sizes": sizes,
        **{name: column.tolist() for name, column in _columns(p).items()},
        **({} if p.lives is None else {"lives": {name: column.tolist() for name, column in _lives_of(p).items()}}),
    })  # fmt: skip


def loads_problem(data: bytes) -> Instance:
    """Return the problem of a file; raise ValueError, one line with the place and a remedy, when it is refused.

    Refused are other formats and versions, missing keys, numbers that are not integers or out of range, columns whose
    lengths are not those of `sizes`, what `Problem` refuses, and content that is not that of the fingerprint, if any.
    """
    file = _decoded(data, _Problem, _PROBLEM)
    try:
        columns: dict[str, Ints] = {}
        z = file.sizes
        task, edge, place = (z.tasks,), (z.edges,), (z.locations,)
        shapes = {
            "duration": (z.tasks, z.devices), "location": (z.devices,), "memory": task, "capacity": place, "src": edge,
            "dst": edge, "payload": edge, "producer": (z.payloads,), "transfer": (z.payloads, z.path_classes),
            "path_class": (z.locations, z.locations), "path_links": (z.locations, z.locations, z.path_links),
            "group": task,
        }  # fmt: skip
        for name, shape in shapes.items():
            _check_lengths(getattr(file, name), shape, f"$.{name}")
            columns[name] = np.array(getattr(file, name), dtype=np.int64).reshape(shape)
        lives = None
        if file.lives is not None:
            names = [f.name for f in msgspec.structs.fields(_Lives)]
            alive = {name: np.array(getattr(file.lives, name), dtype=np.int64) for name in names}
            try:
                lives = Footprint(static=columns["memory"], **alive)
            except ValueError as error:
                raise ValueError(f"$.lives: {error} - correct it") from error
        problem = Problem(**columns, lives=lives)
    except ValueError as error:
        raise ValueError(error if str(error).startswith("$") else f"$: {error} - correct the problem") from error
    if file.fingerprint not in ("", fingerprint(problem)):
        raise ValueError("$.fingerprint: the content has another one - it was changed; remove the key if on purpose")
    return Instance(problem=problem, name=file.name, optimum=file.optimum, ticks_per_second=file.ticks_per_second)


def load_problem(path: Path) -> Problem:
    """Read the problem of a file that is not packed; raise OSError, or ValueError as `loads_problem`."""
    with path.open("rb") as file:
        return loads_problem(file.read(LARGEST + 1)).problem


def dumps_schedule(answer: ScheduleInstance) -> bytes:
    """Return the file of a schedule: equal answers give equal bytes."""
    s = answer.schedule
    return _encoded(_SCHEDULE, {
        "problem": answer.problem, "solver": answer.solver,
        "status": answer.status, "makespan": s.makespan, "lower_bound": answer.lower_bound,
        "bound_by": answer.bound_by, **{f.name: getattr(s, f.name).tolist() for f in fields(Schedule)},
    })  # fmt: skip


def loads_schedule(data: bytes) -> ScheduleInstance:
    """Return the schedule of a file, checked against no problem; raise ValueError, one line, when it is refused."""
    file = _decoded(data, _Schedule, _SCHEDULE)
    columns = {f.name: np.array(getattr(file, f.name), dtype=np.int64) for f in fields(Schedule)}
    try:
        schedule = Schedule(**columns)
    except ValueError as error:
        raise ValueError(f"$: {error} - correct the lengths") from error
    if file.makespan not in (None, schedule.makespan):
        raise ValueError(f"$.makespan: {file.makespan}, but the last task finishes at {schedule.makespan} - correct it")
    return ScheduleInstance(
        schedule=schedule, problem=file.problem, solver=file.solver, status=file.status,
        lower_bound=file.lower_bound, bound_by=file.bound_by,
    )  # fmt: skip


def _decoded(data: bytes, shape: type[T], kind: DocumentKind) -> T:
    _check_size(data)
    return decode_document(data, shape, kind)


def _encoded(kind: DocumentKind, values: dict[str, Any]) -> bytes:
    """Return a document, one key a line in the given order; raise ValueError when it is too large."""
    encoder = msgspec.json.Encoder()
    document = {"format": kind.format, "format_version": kind.version, **values}
    data = b"{\n" + b",\n".join(encoder.encode(k) + b":" + encoder.encode(v) for k, v in document.items()) + b"\n}\n"
    _check_size(data)
    return data


def _check_size(data: bytes) -> None:
    if len(data) > LARGEST:
        raise ValueError(f"{len(data)} bytes are more than {LARGEST} - make the problem smaller")
    bounded(data, MOST_NUMBERS)


def _columns(problem: Problem) -> dict[str, Ints]:
    return {f.name: getattr(problem, f.name) for f in fields(Problem) if f.init and f.name != "lives"}


def _lives_of(problem: Problem) -> dict[str, Ints]:
    """Return the columns of the lives but for the static bytes, which are the problem's memory; none without lives."""
    if problem.lives is None:
        return {}
    return {f.name: getattr(problem.lives, f.name) for f in msgspec.structs.fields(_Lives)}


def _check_lengths(values: Sequence[Any], shape: tuple[int, ...], where: str) -> None:
    if len(values) != shape[0]:
        raise ValueError(f"{where}: {len(values)} entries, expected {shape[0]} by $.sizes - correct one of them")
    if len(shape) > 1:
        for k, row in enumerate(values):
            _check_lengths(row, shape[1:], f"{where}[{k}]")
