"""A context that is entered once."""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Generic, TypeVar

from pesto.core.errors import UsageError

T = TypeVar("T")


class SingleUseContext(AbstractContextManager[T], Generic[T]):
    """A context around another; UsageError, with the call that makes a fresh one, when it is entered again."""

    def __init__(self, call: str, context: AbstractContextManager[T]) -> None:
        self._call, self._context, self._entered = call, context, False

    def __enter__(self) -> T:
        """Enter, the first time."""
        if self._entered:
            raise UsageError.build(
                "this context was entered before", where=self._call, remedy=f"call {self._call} for each with"
            )
        self._entered = True
        return self._context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Leave."""
        return self._context.__exit__(kind, value, trace)
