"""Training steps of the tables: graph files, each built once by `pesto import`, and problems from them."""

import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.tables.cells import Asked, Cell, Found, Key
from pesto.cluster import Cluster
from pesto.costs import Costs
from pesto.files.graph_file import load
from pesto.graph import Graph
from pesto.inputs.load import load_cluster, load_costs
from pesto.problem import build
from solvers.problem import Problem

PAPER = (
    "rnnlm/2x2048", "rnnlm/4x2048", "rnnlm/16x1024", "nmt/2x1024", "nmt/4x1024", "transformer/10x8x1024",
    "transformer/12x8x1024", "transformer/6x16x2048", "nasnet/4x212", "nasnet/6x148", "nasnet/6x168",
)  # fmt: skip
"""The variants of Pesto (Middleware '21), section 5.2."""
PARDNN = ("word-rnn/8x2048", "char-crn/8x2048", "e3d/320", "pardnn-transformer/24x5120", "wrn/610x14")
"""One variant of each model of ParDNN (Qararyah et al. 2020), Table 5.1."""
CLUSTERS = ("v100x2-nvlink", "v100x2-pcie", "v100x4", "v100x8")


class Step(NamedTuple):
    """A step on a cluster, on modelled costs."""

    graph: Graph
    cluster: Cluster
    costs: Costs

    def problem(self) -> Problem:
        """The full graph in ticks; variables alone are memory, as in `pesto.solving.flow`."""
        return build(self.graph, self.costs, self.cluster, memory=self.graph.param_bytes)


def named(model: str, asked: Asked) -> str:
    """The model that is measured in this run: FAMILY/VARIANT, or the family's tiny variant."""
    return f"{model.split('/', maxsplit=1)[0]}/tiny" if asked.tiny else model


def file_of(model: str, asked: Asked) -> Path:
    """Where the graph of FAMILY/VARIANT is."""
    return asked.graphs / f"{named(model, asked).replace('/', '-')}.json"


def step(model: str, cluster: str, asked: Asked) -> Step:
    """FAMILY/VARIANT on a cluster preset."""
    graph, machine = _loaded(file_of(model, asked)), load_cluster(cluster)
    return Step(graph, machine, load_costs(graph, machine, None))


@lru_cache(maxsize=2)
def _loaded(path: Path) -> Graph:
    return load(path)


def graph_cells(models: list[str], asked: Asked) -> list[Cell]:
    """A cell for each graph file that is not there."""
    return [Cell("graphs", (model,), imported) for model in models if not file_of(model, asked).exists()]


def imported(key: Key, asked: Asked) -> Found:
    """Build the graph file of a model."""
    family, variant = named(key[0], asked).split("/")
    asked.graphs.mkdir(parents=True, exist_ok=True)
    words = ("import", "--model", family, "--variant", variant, "-o", str(file_of(key[0], asked)))
    done = subprocess.run([sys.executable, "-m", "pesto", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return {}
