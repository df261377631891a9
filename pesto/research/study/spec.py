"""Study specifications (TOML): grids of instances, solvers, formulations, limits, seeds (docs/guides/studies.md)."""

from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from pesto.core.errors import UsageError
from pesto.core.files import toml
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import quoted, shown
from pesto.core.option import options_of
from pesto.core.settings import Settings
from pesto.core.source import Source
from solvers.api import SOLVERS

VERSION = 1

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Label = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][\w.-]*$")]
_OPTIONS = {each.name: each.meta for each in (*options_of(Source), *options_of(Settings))}
"""Bounds of the options of a step and a solve, which are the same here."""
DEFAULTS = Settings()
"""Defaults of the options of a solve, which are the same here."""
OF_ALL_CELLS = ("workers", "gap", "deterministic")
"""Options of a solve that all cells of a grid share."""
Seconds = Annotated[float, _OPTIONS["time_limit_s"], Meta(le=1e6)]
Seed = Annotated[int, _OPTIONS["seed"]]
Nodes = Annotated[int, _OPTIONS["coarsen_to"]]
Names = Annotated[tuple[Name, ...], Meta(min_length=1)]
Seeds = Annotated[tuple[Seed, ...], Meta(min_length=1)]

SCHEDULE: Literal["schedule"] = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySpec:
    """Instances of a seeded family (`solvers.instances.table`): one for each seed and choice of parameters."""

    name: Name
    seeds: Seeds = (0,)
    params: dict[Name, int | tuple[int, ...]] = field(default_factory=dict)
    """Parameters of the family; a list stands for each of its values in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemFile:
    """An instance in a file of its own (`solvers.files.problem_json`)."""

    file: Name
    """Relative to the folder of the study's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Training steps of a built-in model on clusters, under modelled costs."""

    name: Name
    variants: tuple[Name, ...] = ()
    """Default: the model's first."""
    clusters: Names = ("v100x2-nvlink",)
    """Presets, or files relative to the folder of the study's file."""
    nodes: tuple[Nodes, ...] = ()
    """Sizes of the coarse problems; for schedule cells."""
    batch: Annotated[int, _OPTIONS["batch"], Meta(le=10**6)] | None = None
    per_edge: bool = DEFAULTS.per_edge


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSpec:
    """Every combination of these becomes a cell; ValueError for what does not go together."""

    stage: Literal["schedule", "plan"] = SCHEDULE
    """"schedule" solves a problem; "plan" plans a whole training step."""
    solvers: Names
    formulations: tuple[Name, ...] = ()
    """For solvers that have several; none for the default of a solve."""
    limits_s: Annotated[tuple[Seconds, ...], Meta(min_length=1)]
    seeds: Seeds = (DEFAULTS.seed,)
    workers: Annotated[int, _OPTIONS["workers"]] = DEFAULTS.workers
    gap: Annotated[float, _OPTIONS["gap"]] = DEFAULTS.gap
    deterministic: bool = DEFAULTS.deterministic
    start: bool = True
    """True if a solver starts from a list schedule; for schedule cells."""
    coarsen_to: tuple[Nodes, ...] = ()
    """For plan cells; none for the default of a solve, as of `congestion`."""
    congestion: tuple[bool, ...] = ()
    """For plan cells: whether the exact solver knows that transfers share links."""
    families: tuple[FamilySpec, ...] = ()
    problems: tuple[ProblemFile, ...] = ()
    models: tuple[ModelSpec, ...] = ()

    def __post_init__(self) -> None:
        """Refuse keys that belong to the other stage, and solvers and formulations that do not exist."""
        if not (self.families or self.problems or self.models):
            raise ValueError("a grid without instances - add [[grid.families]], [[grid.problems]] or [[grid.models]]")
        # Keys that are given and have no meaning in this stage.
        if self.stage == SCHEDULE:
            given = {"coarsen_to": bool(self.coarsen_to), "congestion": bool(self.congestion)}
        else:
            given = {"families": bool(self.families), "problems": bool(self.problems), "start": not self.start}
            given |= {"nodes": any(model.nodes for model in self.models)}
        for key in (key for key, value in given.items() if value):
            raise ValueError(f"{key} does not go with stage {self.stage!r} - leave it out")
        if self.stage == SCHEDULE and not all(model.nodes for model in self.models):
            raise ValueError("a model without nodes - give the sizes of its coarse problems, such as nodes = [60]")
        for name in self.solvers:
            if name not in SOLVERS:
                raise ValueError(f"no solver is called {name!r} - {toml.suggest(name, SOLVERS)}")
            has = SOLVERS[name].formulations
            for formulation in self.formulations:
                if has and formulation not in has:
                    raise ValueError(f"{name} has no formulation {formulation!r} - {toml.suggest(formulation, has)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The content of a study's file."""

    format_version: int
    name: Label
    title: str = ""
    grid: Annotated[tuple[GridSpec, ...], Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study and the folder that its files are relative to."""

    spec: Spec
    folder: Path
    about: str
    """The comment that the file begins with, on one line; empty where it has none."""


def study_names() -> tuple[str, ...]:
    """Names of the studies that ship with the project, sorted."""
    return tuple(sorted(p.stem for p in _folder().glob("*.toml")))


def load_study(name_or_path: str) -> Study:
    """The shipped study of that name, or the one in a file: anything that ends in .toml or contains a separator.

    UsageError with a suggestion for an unknown name, key, solver or formulation and for values out of range; FileError
    when the file cannot be read.
    """
    if name_or_path.endswith(".toml") or "/" in name_or_path or "\\" in name_or_path:
        path = Path(name_or_path)
    elif name_or_path in study_names():
        path = _folder() / f"{name_or_path}.toml"
    else:
        remedy = toml.suggest(name_or_path, study_names())
        raise UsageError.build(
            f"no study is named {quoted(name_or_path)}", remedy=f"{remedy}; or give a file ending in .toml"
        )
    content = read_bytes(path, toml.MOST_BYTES)
    spec = toml.parse(content, Spec, shown(path))
    if spec.format_version != VERSION:
        raise UsageError.build(
            f"format_version {spec.format_version} is not known", where=shown(path), remedy=f"this reads {VERSION}"
        )
    lines = takewhile(lambda line: line.startswith("#"), content.decode().splitlines())
    about = " ".join(line.lstrip("#").strip() for line in lines)
    return Study(spec=spec, folder=path.parent.absolute(), about=about)


def _folder() -> Path:
    return Path(__file__).parents[2] / "configs" / "studies"
