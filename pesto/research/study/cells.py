"""A study as a list of cells, each with a key that is the same wherever and whenever it is computed; their answers."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from pesto.core.errors import FileError, InputError, UsageError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import Count
from pesto.research.study.spec import DEFAULTS, OF_ALL_CELLS, SCHEDULE, GridSpec, Study
from solvers import FAILED as FAILURES
from solvers.api import SOLVERS
from solvers.instances import table

SCHEMA = 1
"""Version of the study's file: its PRAGMA user_version."""
PLAN: Literal["plan"] = "plan"
"""The stage of a cell that plans a whole training step."""
REFUSED = "refused"
"""The status of a cell whose instance cannot be built; the others are those of `solvers.result.Status`."""
FAILED = (*sorted(str(status) for status in FAILURES), REFUSED)
"""Statuses of cells that have no answer, for a reason that is not the problem's."""


FiniteAmount = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]
"""A finite number >= 0."""


class ProgressPoint(msgspec.Struct, frozen=True, array_like=True):
    """A step of progress: better schedule, better bound, or both."""

    seconds: float
    makespan: int | None
    """Makespan in ticks; None where the schedule is no better."""
    lower_bound: int
    """Lower bound in ticks."""


class CellAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one cell: a row of `results` and the rows of `traces`. Times in ticks but for `seconds`."""

    key: str
    status: str
    limit_reason: str = ""
    makespan: Count | None = None
    lower_bound: Count = 0
    bound_by: str = ""
    start_makespan: Count | None = None
    seconds: FiniteAmount = 0.0
    version: str = ""
    detail: str = ""
    tasks: Count = 0
    devices: Count = 0
    edges: Count = 0
    measures: dict[str, Any] = {}
    trace: tuple[ProgressPoint, ...] = ()


_FORM = 1
"""Counts up when what a key is made of changes."""


class GeneratedProblem(msgspec.Struct, frozen=True, kw_only=True, tag="family"):
    """A problem of a seeded family."""

    family: str
    seed: int
    """0 where the family is not seeded."""
    params: dict[str, int]
    """All that the family has."""

    @property
    def label(self) -> str:
        """The name that tables show."""
        return table.label(self.family, self.seed, **self.params)


class FiledProblem(msgspec.Struct, frozen=True, kw_only=True, tag="problem"):
    """A problem in a file."""

    file: str
    sha256: str
    """SHA-256 of the content; empty if it could not be read."""
    path: bytes
    """Where it is on this machine, by `os.fsencode`: a name need not be text."""

    @property
    def label(self) -> str:
        """The name that tables show."""
        return self.file

    @property
    def family(self) -> str:
        """Group of the instance in tables."""
        return "file"


class TrainingInstance(msgspec.Struct, frozen=True, kw_only=True, tag="model"):
    """A training step on a cluster; with `nodes`, the problem of its coarse graph."""

    model: str
    variant: str
    cluster: str
    """A preset or, as the study has it, a file."""
    sha256: str
    """SHA-256 of the cluster's file; empty for a preset, and if it could not be read."""
    path: bytes
    """A preset, or where the file is on this machine, by `os.fsencode`."""
    nodes: int | None
    batch: int | None
    per_edge: bool

    @property
    def label(self) -> str:
        """The name that tables show."""
        batch = f" batch {self.batch}" if self.batch else ""
        edge = " per edge" if self.per_edge else ""
        nodes = f" {self.nodes} nodes" if self.nodes else ""
        return f"{self.model} {self.variant}{batch}{edge} {self.cluster}{nodes}"

    @property
    def family(self) -> str:
        """Group of the instance in tables."""
        return self.model


Instance = GeneratedProblem | FiledProblem | TrainingInstance


class StudyCell(msgspec.Struct, frozen=True, kw_only=True):
    """One solve or plan of a study: everything that its result depends on but the machine and the versions."""

    key: str
    """Hash of all below but `ordinal` and the places of files."""
    ordinal: int
    """Place in the order of the study's file: grid by grid, instance by instance."""
    stage: str
    instance: Instance
    solver: str
    formulation: str
    """Empty for a solver that has but one."""
    limit_s: float
    seed: int
    settings: dict[str, Any]
    """Settings. Schedule cells: workers, gap, deterministic, start. Plan cells: coarsen_to and congestion, no start."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Settings and, as `of`, the instance without the places of files."""
        return {**self.settings, "of": identity(self.instance)}


def identity(instance: Instance) -> dict[str, Any]:
    """Identity of an instance, independent of the places of its files."""
    plain: dict[str, Any] = msgspec.to_builtins(instance)
    plain.pop("path", None)
    return plain


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def cells_of(study: Study) -> list[StudyCell]:
    """The cells of a study in their order; where two grids describe one cell, it is there once.

    UsageError for a family or a parameter that does not exist.
    """
    result: dict[str, StudyCell] = {}
    for grid in study.spec.grid:
        for instance in _instances(grid, study.folder):
            for cell in _cells(grid, instance):
                result.setdefault(cell["key"], StudyCell(ordinal=len(result), **cell))
    return list(result.values())


def _cells(grid: GridSpec, instance: Instance) -> Iterator[dict[str, Any]]:
    """The fields but `ordinal` of every cell of one instance in one grid."""
    shared = {name: getattr(grid, name) for name in OF_ALL_CELLS}
    varied: list[dict[str, Any]] = [{"start": grid.start}]
    if grid.stage != SCHEDULE:
        sizes = product(grid.coarsen_to or (DEFAULTS.coarsen_to,), grid.congestion or (DEFAULTS.congestion,))
        varied = [{"coarsen_to": nodes, "congestion": congestion} for nodes, congestion in sizes]
    for limit_s, solver, settings in product(grid.limits_s, grid.solvers, varied):
        formulations = (grid.formulations or (DEFAULTS.formulation,)) if SOLVERS[solver].formulations else ("",)
        for formulation, seed in product(formulations, grid.seeds):
            named = {"stage": grid.stage, "solver": solver, "formulation": formulation, "limit_s": float(limit_s)}
            named |= {"seed": seed, "settings": shared | settings}
            # An instance's identity without the names of files, of which the content matters.
            plain = identity(instance)
            if plain.get("sha256"):
                plain.pop("file", None)
                plain.pop("cluster", None)
            text = canonical({"form": _FORM, **named, "of": plain})
            yield {"key": hashlib.sha256(text.encode()).hexdigest()[:32], "instance": instance, **named}


def _instances(grid: GridSpec, folder: Path) -> Iterator[Instance]:
    from pesto.inputs.cluster_file import load_cluster
    from pesto.tf.models import find  # names only: no TensorFlow

    for family in grid.families:
        choices = [value if isinstance(value, tuple) else (value,) for value in family.params.values()]
        for values in product(*choices):
            try:
                params = table.settled(family.name, dict(zip(family.params, values, strict=True)))
            except ValueError as error:
                raise UsageError.of(error, where="the study") from error
            for seed in family.seeds if table.FAMILIES[family.name].seeded else (0,):
                yield GeneratedProblem(family=family.name, seed=seed, params=params)
    for problem in grid.problems:
        path = folder / problem.file
        yield FiledProblem(file=problem.file, sha256=_digest(path), path=os.fsencode(path))
    for model in grid.models:
        try:
            variants = [find(model.name, variant)[1] for variant in model.variants or (None,)]
        except ValueError as error:
            raise UsageError.of(error, where="the study") from error
        sizes: tuple[int | None, ...] = (None,) if grid.stage == PLAN else model.nodes
        for variant, cluster, nodes in product(variants, model.clusters, sizes):
            place, digest = os.fsencode(cluster), ""
            if names_file(cluster):
                place, digest = os.fsencode(folder / cluster), _digest(folder / cluster)
            else:
                load_cluster(cluster)  # refuses what is no preset
            yield TrainingInstance(
                model=model.name, variant=variant, cluster=cluster, sha256=digest, path=place, nodes=nodes,
                batch=model.batch, per_edge=model.per_edge,
            )  # fmt: skip


def _digest(path: Path) -> str:
    """SHA-256 of the content; empty if it cannot be read: the cell reports that."""
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except (FileError, InputError):
        return ""


def names_file(cluster: str) -> bool:
    """Return True if a cluster is a file; else it is a preset."""
    return cluster.endswith(".toml") or "/" in cluster
