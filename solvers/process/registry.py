"""Where a solver lives, and how to load it late: vendors are imported by nothing else."""

import importlib
from dataclasses import dataclass
from importlib import metadata

from solvers.base import Solver

OWN = "pesto-placement"
"""The distribution whose version a solver without a vendor has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverEntry:
    """One row of the table of solvers."""

    module: str
    attribute: str
    """Attribute of the module that returns a `Solver` when called with `arguments`."""
    isolated: bool
    """True if it must run in a process of its own: everything with native code that can crash or ignore its limit."""
    package: str | None = None
    """The distribution it needs; None when it needs none beyond the project's own."""
    optional: bool = False
    """True if the package comes with an extra of this project, so that nothing is wrong where it is not installed."""
    confirms: bool = False
    """True if its word that no schedule exists is that of two solvers, and believed without a proof."""
    versions: str | None = None
    """A module whose `version()` is the solver's own, None where it is not here; None: the package's is."""
    polishes: bool = False
    """True if a quick start helps it: it improves on `Options.start`, and makes none by itself."""
    lives: bool = False
    """True if it weighs `Problem.lives`, what comes and goes; what does not is given the problem without them."""
    formulations: tuple[str, ...] = ()
    """The integer programs that it can be given by name; none where it has a model of its own."""
    arguments: tuple[str, ...] = ()

    def load(self) -> Solver:
        """The solver; ImportError when its package is missing, AttributeError when the module lacks it."""
        solver: Solver = getattr(importlib.import_module(self.module), self.attribute)(*self.arguments)
        return solver

    def version(self) -> str | None:
        """Version of the solver or its package, None where it is not here; without a package the project's, or ""."""
        if self.versions is not None:
            told: str | None = importlib.import_module(self.versions).version()
            return told
        try:
            return metadata.version(self.package or OWN)
        except metadata.PackageNotFoundError:
            return None if self.package else ""
