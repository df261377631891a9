"""Every error that a user can meet: what is wrong, where, what to do about it, and the exit code."""

from enum import IntEnum
from typing import NamedTuple, Self


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
    """The root of the tree. Its text is one line, "where: message - remedy", without the parts that are empty.

    It has Exception's constructor: with another one TensorFlow's AutoGraph makes errors of its own of those that are
    raised in traced functions.
    """

    exit_code = Exit.BUG
    """Exit code of the command line for errors of this class."""
    where: str = ""
    """File or name that the error is about."""
    remedy: str = ""
    """Advice to the user; empty where there is none."""

    @property
    def message(self) -> str:
        """Text without the place and the remedy: what is wrong."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        """Return the line that is shown."""
        return _line(self.where, self.message, self.remedy)

    @classmethod
    def build(cls, message: str, *, where: object = "", remedy: str = "") -> Self:
        """Return an error of this class from its parts."""
        error = cls(message)
        error.where, error.remedy = str(where), remedy
        return error

    @classmethod
    def of(cls, error: Exception | str, *, where: object = "") -> Self:
        """Return an error of this class with the message and remedy of another one, or of a text of a library.

        Libraries below this package raise ValueErrors, whose text has the remedy after its last dash.
        """
        if isinstance(error, PestoError):
            message, remedy = _line(error.where, error.message, ""), error.remedy
        else:
            message, remedy = split_remedy(str(error))
        return cls.build(message, where=where, remedy=remedy)


def split_remedy(text: str) -> tuple[str, str]:
    """Split a text of another library at its last dash into a message and a remedy, which is empty without a dash."""
    message, _, remedy = text.rpartition(" - ")
    return (message, remedy) if message else (text, "")


def _line(where: str, message: str, remedy: str) -> str:
    text = f"{where}: {message}" if where else message
    return f"{text} - {remedy}" if remedy else text


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


class ErrorReport(NamedTuple):
    """An error that ends a verb or a job, as it is shown and written as JSON."""

    message: str
    """Fault on one line, without the place and the remedy."""
    exit_code: int
    """One of `Exit`."""
    remedy: str = ""
    """Advice to the user; empty where there is none."""
    where: str = ""
    """File or name that it is about; empty where the message says it."""

    @property
    def error(self) -> str:
        """Place and fault on one line, without the remedy."""
        return _line(self.where, self.message, "")

    @property
    def text(self) -> str:
        """The line that is shown."""
        return _line(self.where, self.message, self.remedy)

    def as_object(self) -> dict[str, object]:
        """Return the keys of an error in JSON; null for what is not known."""
        return {
            "error": self.error, "message": self.message, "where": self.where or None, "remedy": self.remedy or None,
            "exit_code": int(self.exit_code),
        }  # fmt: skip


def describe_error(error: BaseException, interrupted: Exit | None) -> ErrorReport:
    """Return the report of any error; `interrupted` is the exit code of a signal that was received, if one was."""
    match error:
        case PestoError():
            return ErrorReport(error.message, error.exit_code, error.remedy, error.where)
        case KeyboardInterrupt():
            return ErrorReport("interrupted; nothing was written", interrupted or Exit.INTERRUPTED)
        case OSError():
            return ErrorReport(str(error.strerror or error), Exit.IO, "check what the output goes to")
        case MemoryError():
            return ErrorReport("out of memory", Exit.NOTHING, "give the machine more, or plan a smaller graph")
    from solvers.compiled.interruption import struck  # late: solvers are not loaded with this face

    if struck(error):
        return describe_error(KeyboardInterrupt(), interrupted)
    message = f"bug: {type(error).__name__}: {error}"
    return ErrorReport(message, Exit.BUG, "set PESTO_TRACEBACK=1 and report what it prints")
