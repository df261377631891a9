"""Facts of a named training step, before anything is planned."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pesto.core.errors import PestoError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFeed:
    """An input of a step."""

    name: str
    """Name of the op that stands for it."""
    dtype: str
    """TensorFlow's name of its type."""
    shape: tuple[int, ...] | None
    """Dimensions, -1 where the size is open; None for an unknown rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableTie:
    """Ops that must share a device, or one op that holds what would otherwise be apart."""

    ops: int
    """Number of ops."""
    variables: int
    """Number of variables that they touch."""
    variable_bytes: int
    """Bytes of these variables."""
    why: str
    """Reason for the tie, with the name of an op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """A step as it was found; None where the source, a file of the project's own, says nothing of it."""

    source: str
    """Named source, for people."""
    ops: int
    """Number of ops of the step."""
    variables: int
    """Number of variables."""
    variable_bytes: int
    """Bytes of all variables, slots and counters among them."""
    ties: tuple[VariableTie, ...]
    """Groups of ops that share a device, those with most bytes of variables first."""
    ends: tuple[str, ...] = ()
    """Names of the ops that the step ends with."""
    feeds: tuple[StepFeed, ...] | None = None
    """Inputs of the step, in the order of the graph."""
    batch: int | None = None
    """Examples in a batch, in place of an open first dimension; None where none was given or is needed."""
    open_batch: bool = False
    """True if a feed leaves its first dimension open."""
    size_ops: int = 0
    """Number of ops that read sizes at run time only because the batch is open; 0 with a fixed batch."""
    optimizer: str = ""
    """Class of the Keras optimizer; empty where the step does not tell."""
    updated: int | None = None
    """Number of variables that the step writes; 0 for inference."""
    updates: Mapping[str, int] = field(default_factory=dict)
    """Type of op -> how many ops of it write variables."""
    holders: tuple[VariableTie, ...] = ()
    """Loops and branches that each hold several variables on one device, those with most bytes first."""
    pinned: Mapping[str, int] = field(default_factory=dict)
    """Device -> how many ops must run on it, as the step says itself."""
    careful: tuple[str, ...] = ()
    """Warnings, with remedies, of steps that can be planned but not run by `pesto.apply`."""
    refused: tuple[PestoError, ...] = ()
    """Why a plan would be refused."""
