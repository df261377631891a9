"""Whom a store must tell what other servers do: who runs jobs here, and who watches them."""

from typing import Protocol

from pesto.service.serve.store.job_records import Begun


class Works(Protocol):
    """Who runs jobs."""

    def running(self) -> list[Begun]:
        """The attempts that are its own."""
        ...

    def cancel(self, name: str, attempt: int | None = None, *, again: bool = True) -> None:
        """Interrupt one; `again`: end one that was interrupted before."""
        ...


class Watched(Protocol):
    """Who watches jobs."""

    def watched(self) -> list[int]:
        """The numbers of the jobs."""
        ...

    def told(self, jobs: set[int]) -> None:
        """These have new events."""
        ...
