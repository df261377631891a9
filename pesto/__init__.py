"""Optimal placement and schedule of a training step on several GPUs: this is the whole face (docs/reference/api.md)."""

from typing import TYPE_CHECKING

from pesto.core.errors import FileError as FileError
from pesto.core.errors import InfeasibleError as InfeasibleError
from pesto.core.errors import InputError as InputError
from pesto.core.errors import MismatchError as MismatchError
from pesto.core.errors import NothingFoundError as NothingFoundError
from pesto.core.errors import PestoError as PestoError
from pesto.core.errors import SolverError as SolverError
from pesto.core.errors import UsageError as UsageError
from pesto.core.errors import VerificationError as VerificationError

if TYPE_CHECKING:
    from pesto.service.client.clients import AsyncClient as AsyncClient
    from pesto.service.client.clients import Client as Client
    from pesto.verbs.api import Cluster as Cluster
    from pesto.verbs.api import Comparison as Comparison
    from pesto.verbs.api import Graph as Graph
    from pesto.verbs.api import Incumbent as Incumbent
    from pesto.verbs.api import Plan as Plan
    from pesto.verbs.api import Profile as Profile
    from pesto.verbs.api import Settings as Settings
    from pesto.verbs.api import Simulation as Simulation
    from pesto.verbs.api import Sweep as Sweep
    from pesto.verbs.api import apply as apply
    from pesto.verbs.api import check as check
    from pesto.verbs.api import compare as compare
    from pesto.verbs.api import explain as explain
    from pesto.verbs.api import graph_from_networkx as graph_from_networkx
    from pesto.verbs.api import load_cluster as load_cluster
    from pesto.verbs.api import load_graph as load_graph
    from pesto.verbs.api import load_plan as load_plan
    from pesto.verbs.api import logical_cpus as logical_cpus
    from pesto.verbs.api import pipeline as pipeline
    from pesto.verbs.api import place as place
    from pesto.verbs.api import profile as profile
    from pesto.verbs.api import record as record
    from pesto.verbs.api import rewrite as rewrite
    from pesto.verbs.api import save_plan as save_plan
    from pesto.verbs.api import save_profile as save_profile
    from pesto.verbs.api import simulate as simulate
    from pesto.verbs.api import solve as solve
    from pesto.verbs.api import sweep as sweep
else:
    # Type checkers would take a module's __getattr__ for leave to ask for any name, misspelt ones included.
    def __getattr__(name: str) -> object:
        """Load the programming interface when one of its names is first asked for: `import pesto` stays quick."""
        if name not in __all__:
            raise AttributeError(f"module 'pesto' has no attribute {name!r}")
        import importlib

        module = "service.client.clients" if name in ("AsyncClient", "Client") else "verbs.api"
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
