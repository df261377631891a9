"""Optimal placement and schedule of a training step on several GPUs: this is the whole face, docs/api.md shows it."""

from typing import TYPE_CHECKING

from pesto.errors import FileError as FileError
from pesto.errors import InfeasibleError as InfeasibleError
from pesto.errors import InputError as InputError
from pesto.errors import MismatchError as MismatchError
from pesto.errors import NothingFoundError as NothingFoundError
from pesto.errors import PestoError as PestoError
from pesto.errors import SolverError as SolverError
from pesto.errors import UsageError as UsageError
from pesto.errors import VerificationError as VerificationError

if TYPE_CHECKING:
    from pesto.api import Cluster as Cluster
    from pesto.api import Comparison as Comparison
    from pesto.api import Graph as Graph
    from pesto.api import Incumbent as Incumbent
    from pesto.api import Plan as Plan
    from pesto.api import Profile as Profile
    from pesto.api import Settings as Settings
    from pesto.api import Simulation as Simulation
    from pesto.api import Sweep as Sweep
    from pesto.api import apply as apply
    from pesto.api import check as check
    from pesto.api import compare as compare
    from pesto.api import explain as explain
    from pesto.api import graph_from_networkx as graph_from_networkx
    from pesto.api import load_cluster as load_cluster
    from pesto.api import load_graph as load_graph
    from pesto.api import load_plan as load_plan
    from pesto.api import logical_cpus as logical_cpus
    from pesto.api import pipeline as pipeline
    from pesto.api import place as place
    from pesto.api import profile as profile
    from pesto.api import record as record
    from pesto.api import rewrite as rewrite
    from pesto.api import save_plan as save_plan
    from pesto.api import save_profile as save_profile
    from pesto.api import simulate as simulate
    from pesto.api import solve as solve
    from pesto.api import sweep as sweep
    from pesto.client.async_client import AsyncClient as AsyncClient
    from pesto.client.sync_client import Client as Client
else:
    # Type checkers would take a module's __getattr__ for leave to ask for any name, misspelt ones included.
    def __getattr__(name: str) -> object:
        """Load the programming interface when one of its names is first asked for: `import pesto` stays quick."""
        if name not in __all__:
            raise AttributeError(f"module 'pesto' has no attribute {name!r}")
        import importlib

        module = {"AsyncClient": "client.async_client", "Client": "client.sync_client"}.get(name, "api")
        globals()[name] = getattr(importlib.import_module(f"pesto.{module}"), name)
        return globals()[name]


__all__ = [
    "AsyncClient", "Client", "Cluster", "Comparison", "FileError", "Graph", "Incumbent", "InfeasibleError",
    "InputError", "MismatchError",
    "NothingFoundError", "PestoError", "Plan", "Profile", "Settings", "Simulation", "SolverError", "Sweep",
    "UsageError", "VerificationError", "apply", "check", "compare", "explain", "graph_from_networkx", "load_cluster",
    "load_graph", "load_plan", "logical_cpus", "pipeline", "place", "profile", "record", "rewrite", "save_plan",
    "save_profile", "simulate", "solve", "sweep",
]  # fmt: skip


def __dir__() -> list[str]:
    """The names of the face."""
    return list(__all__)
