"""Training steps that cells work on: graph files, each built once by `pesto import`, on clusters and modelled costs."""

import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pesto.choosing.whatif.grid import ClusterPoint, accelerators, scale_cluster
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.files.graph_file import load
from pesto.core.graph import Graph
from pesto.core.problem import build_problem
from pesto.inputs.load import load_cluster, load_costs
from pesto.research.reproduction.cached_cells import CellSettings, Found, Key, WorkCell
from solvers import Problem

PAPER = (
    "rnnlm/2x2048", "rnnlm/4x2048", "rnnlm/16x1024", "nmt/2x1024", "nmt/4x1024", "transformer/10x8x1024",
    "transformer/12x8x1024", "transformer/6x16x2048", "nasnet/4x212", "nasnet/6x148", "nasnet/6x168",
)  # fmt: skip
"""The variants of Pesto (Middleware '21), section 5.2."""


class StepOnCluster(NamedTuple):
    """A step on a cluster, on modelled costs."""

    graph: Graph
    cluster: Cluster
    costs: Costs

    def problem(self) -> Problem:
        """The full graph in ticks; variables alone are memory, as in `pesto.planning.solving.flow`."""
        return build_problem(self.graph, self.costs, self.cluster, memory=self.graph.param_bytes)


def model_name(model: str, settings: CellSettings) -> str:
    """The model that is worked on in this run: FAMILY/VARIANT or FAMILY/VARIANT@BATCH, or the family's tiny variant."""
    return f"{model.split('/', maxsplit=1)[0]}/tiny" if settings.tiny else model


def file_of(model: str, settings: CellSettings) -> Path:
    """Where the graph of a model is."""
    return settings.graphs / f"{model_name(model, settings).replace('/', '-').replace('@', '-batch-')}.json"


def step(model: str, cluster: str, settings: CellSettings) -> StepOnCluster:
    """A model on a cluster preset, or on the first N accelerators of one: PRESET:N."""
    return step_on(model, machine(cluster), settings)


def step_on(model: str, cluster: Cluster, settings: CellSettings) -> StepOnCluster:
    """A model on any cluster."""
    graph = _loaded(file_of(model, settings))
    return StepOnCluster(graph, cluster, load_costs(graph, cluster, None))


def machine(name: str, **changed: float) -> Cluster:
    """The cluster PRESET or PRESET:N; `changed` are factors of a sweep's point, such as `links=0.1`."""
    preset, _, count = name.partition(":")
    result = load_cluster(preset)
    devices = int(count) if count else len(accelerators(result))
    return scale_cluster(result, ClusterPoint(devices=devices, **changed)) if count or changed else result


@lru_cache(maxsize=2)
def _loaded(path: Path) -> Graph:
    return load(path)


def graph_cells(models: Iterable[str], settings: CellSettings) -> list[WorkCell]:
    """A cell for each graph file that is not there, each file once."""
    files = {file_of(model, settings): model for model in models}
    return [WorkCell("graphs", (model,), import_graph) for path, model in files.items() if not path.exists()]


def import_graph(key: Key, settings: CellSettings) -> Found:
    """Build the graph file of a model."""
    name, _, batch = model_name(key[0], settings).partition("@")
    family, variant = name.split("/")
    settings.graphs.mkdir(parents=True, exist_ok=True)
    words = ("import", "--model", family, "--variant", variant, *(("--batch", batch) if batch else ()))
    run_pesto([*words, "-o", str(file_of(key[0], settings))])
    return {}


def run_pesto(words: list[str]) -> str:
    """Return the output of `pesto WORDS`, run in a process of its own; RuntimeError with its message if it fails."""
    done = subprocess.run([sys.executable, "-m", "pesto", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"pesto {words[0]} ended with {done.returncode}")
    return done.stdout
