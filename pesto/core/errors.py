"""Every error that a user can meet, with its exit code. The text says what, where, and after a dash the remedy."""

from enum import IntEnum
from typing import NamedTuple


class Exit(IntEnum):
    """The exit codes of the command line; they are part of the interface and never change meaning."""

    OK = 0
    BUG = 1
    USAGE = 2
    INPUT = 3
    INFEASIBLE = 4
    NOTHING = 5
    VERIFICATION = 6
    SOLVER = 7
    IO = 8
    MISMATCH = 9
    DIFFERENT = 10
    INTERRUPTED = 130
    TERMINATED = 143


class PestoError(Exception):
    """The root of the tree; `exit_code` is what the command line ends with."""

    exit_code = Exit.BUG


class UsageError(PestoError):
    """Wrong options or configuration."""

    exit_code = Exit.USAGE


class InputError(PestoError):
    """A graph, plan, cluster or profile that is refused."""

    exit_code = Exit.INPUT


class InfeasibleError(PestoError):
    """Proven: no plan exists; the text gives the proof."""

    exit_code = Exit.INFEASIBLE


class NothingFoundError(PestoError):
    """No plan within the limits, though one may exist."""

    exit_code = Exit.NOTHING


class VerificationError(PestoError):
    """An answer failed verification and nothing replaced it."""

    exit_code = Exit.VERIFICATION


class SolverError(PestoError):
    """A solver is missing or crashed, and no other answered."""

    exit_code = Exit.SOLVER


class FileError(PestoError):
    """A file could not be read or written."""

    exit_code = Exit.IO


class MismatchError(PestoError):
    """A plan or profile belongs to another graph."""

    exit_code = Exit.MISMATCH


class Told(NamedTuple):
    """What is said of an error that ends something, and what that ends with."""

    text: str
    """One sentence; the remedy stands after its last dash."""
    exit_code: int

    @property
    def what(self) -> str:
        """The text without its remedy."""
        what, _, remedy = self.text.rpartition(" - ")
        return what or remedy

    @property
    def remedy(self) -> str | None:
        """What to do about it; None where the text says nothing."""
        what, _, remedy = self.text.rpartition(" - ")
        return remedy if what else None


def told(error: BaseException, interrupted: Exit | None) -> Told:
    """What is said of an error, whatever it is; `interrupted` is the code of the signal that came, if one did."""
    match error:
        case PestoError():
            return Told(str(error), error.exit_code)
        case KeyboardInterrupt():
            return Told("interrupted; nothing was written", interrupted or Exit.INTERRUPTED)
        case OSError():
            return Told(f"{error.strerror or error} - check what the output goes to", Exit.IO)
        case MemoryError():
            return Told("out of memory - give the machine more, or plan a smaller graph", Exit.NOTHING)
    from solvers.compiled.interruption import struck  # late: solvers are not loaded with this face

    if struck(error):
        return told(KeyboardInterrupt(), interrupted)
    what = f"bug: {type(error).__name__}: {error}"
    return Told(f"{what} - set PESTO_TRACEBACK=1 and report what it prints", Exit.BUG)
