"""The service's clients, `Client` and `AsyncClient`, on httpx."""

import time
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from pesto.core.distribution import install_command
from pesto.core.errors import SolverError
from pesto.service.client.calls import (
    CUT_S,
    Ask,
    Calls,
    Followed,
    JobEvent,
    JobWishes,
    Pause,
    Reply,
    Steps,
    blob_of,
    headers,
    judged,
    own_machine,
)
from pesto.service.protocol import JobReply
from pesto.verbs.jobs.request import JobRequest

if TYPE_CHECKING:
    import httpx

READ_S = 60.0
"""Seconds of silence after which a connection is taken for dead; the service says something every 15."""
_SEND_S = 20.0


def library() -> ModuleType:
    """The package httpx; SolverError with how to install it."""
    try:
        import httpx
    except ImportError as error:
        raise SolverError.build(
            f"a client of the service needs {error.name}", remedy=f"{install_command('client')}"
        ) from error
    return httpx


def setup(url: str, token: str | None) -> dict[str, Any]:
    """The arguments of httpx's clients."""
    return {
        "base_url": url,
        "headers": headers(token),
        "timeout": library().Timeout(_SEND_S, read=READ_S),
        "trust_env": not own_machine(url),
        "verify": url.startswith("https:"),  # without it no certificates are loaded, which takes time
    }


def reply_of(answer: "httpx.Response") -> Reply:
    """An answer whose body is read."""
    return Reply(answer.status_code, answer.headers.get("retry-after"), answer.content)


def unreached(error: "httpx.TransportError") -> Reply:
    """No answer."""
    return Reply(why=str(error) or type(error).__name__)


def body_headers(ask: Ask) -> dict[str, str]:
    """The headers of a request, with the length of a file that it sends."""
    length = {"Content-Length": str(ask.body.stat().st_size)} if isinstance(ask.body, Path) else {}
    return {**ask.headers, **length}


T = TypeVar("T")


class Client:
    """A placement service (`pesto serve`), asked over HTTP; a context manager, or closed by `close`.

    What fails raises the `PestoError` that the command line would end with, a service that cannot be reached FileError.
    One that has answered before may be away for `patience_s` seconds: it is asked again until then, also where it says
    that it is full, and nothing is done twice.
    """

    def __init__(self, url: str, token: str | None = None, *, patience_s: float = 60.0) -> None:
        """`token`: by default what the environment has as PESTO_TOKEN, if anything."""
        self._calls = Calls(url, patience_s)
        self._http = library().Client(**setup(self._calls.url, token))

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Hang up; jobs go on."""
        self._http.close()

    def upload(self, file: bytes | Path | str) -> str:
        """Send a file, or its bytes, unless they are there; the SHA-256 by which a request names it as `blob`."""
        return self._run(self._calls.upload(blob_of(file)))

    def submit(self, request: JobRequest | Mapping[str, Any], key: str | None = None) -> str:
        """Queue a job, the object of POST /v1/jobs, such as {"kind": "solve", "source": {"model": "nmt"}}; its id.

        `key`: the Idempotency-Key, by default a new one: however often the submission must be sent, it is one job.
        """
        return self._run(self._calls.submit(request, key))

    def jobs(
        self, state: str | None = None, label: str | None = None, most: int = 50, **wanted: Unpack[JobWishes]
    ) -> list[JobReply]:
        """The newest jobs; those of one state, label, kind or model, with a text, or of a time, where it is given."""
        return self._run(self._calls.jobs(most, {"state": state, "label": label, **wanted}))

    def job(self, name: str) -> JobReply:
        """A job as it is now, by its id."""
        return self._run(self._calls.job(name))

    def wait(self, name: str) -> JobReply:
        """Wait for the end of a job; the job then, whether it is done, failed or cancelled."""
        for _ in self.events(name, self.job(name).events):
            pass
        return self.job(name)

    def cancel(self, name: str) -> str:
        """Cancel a job as Ctrl-C does, the best plan is kept; its state then."""
        return self._run(self._calls.cancel(name))

    def delete(self, name: str, *, purge: bool = False) -> str:
        """Cancel a job, or with `purge` delete one that has ended, with its events and files; its last state."""
        return self._run(self._calls.delete(name, purge=purge))

    def plan(self, name: str) -> bytes:
        """The plan file that a job wrote."""
        return self._run(self._calls.file(name, "plan"))

    def report(self, name: str) -> bytes:
        """A job's plan as one HTML page."""
        return self._run(self._calls.file(name, "report"))

    def trace(self, name: str) -> bytes:
        """A job's step for Perfetto, packed with gzip."""
        return self._run(self._calls.file(name, "trace"))

    def explain(self, name: str) -> dict[str, Any]:
        """The object of pesto explain --json, of a job's plan."""
        return self._run(self._calls.told(name, "explain"))

    def file(self, name: str, file: str) -> bytes:
        """Any of a job's files: one of the names in `JobReply.files`."""
        return self._run(self._calls.file(name, f"files/{file}"))

    def diff(self, first: str, second: str) -> dict[str, Any]:
        """The object of pesto diff --json, of the plans of two jobs."""
        return self._run(self._calls.diff(first, second))

    def events(self, name: str, after: int = 0) -> Iterator[JobEvent]:
        """Yield a job's events from `after` + 1 to its end, each once, also where the server is started anew."""
        followed = Followed(name, after)
        while not followed.over:
            pause = yield from self._one_stream(followed)
            if pause is not None:
                time.sleep(pause.seconds)

    def _one_stream(self, followed: Followed) -> Generator[JobEvent, None, Pause | None]:
        """The events of one stream; how long to wait where it was cut."""
        url, patience = self._calls.url, self._calls.patience
        try:
            with self._http.stream("GET", followed.path, headers=followed.headers) as answer:
                followed.begin()
                for chunk in answer.iter_bytes() if answer.is_success else ():
                    yield from followed.take(chunk)
                    patience.answered()
                if not answer.is_success:
                    answer.read()
                    return judged(url, patience, reply_of(answer))
        except library().TransportError as error:
            return judged(url, patience, unreached(error))
        if not followed.over:
            followed.ended(self.job(followed.name))
        return None if followed.over else Pause(CUT_S)

    def _run(self, steps: Steps[T]) -> T:
        """Do what the steps ask for, to their end."""
        reply: Reply | None = None
        try:
            while True:
                step = steps.send(reply)  # type: ignore[arg-type]  # the first one is sent None
                reply = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    reply = self._carried(step)
        except StopIteration as end:
            value: T = end.value
            return value

    def _carried(self, ask: Ask) -> Reply:
        with ExitStack() as stack:
            body = stack.enter_context(ask.body.open("rb")) if isinstance(ask.body, Path) else ask.body
            try:
                return reply_of(
                    self._http.request(ask.method, ask.path, params=ask.params, headers=body_headers(ask), content=body)
                )
            except library().TransportError as error:
                return unreached(error)


_CHUNK = 1 << 18


class AsyncClient:
    """`Client` for an event loop: the same methods, awaited; `events` is an asynchronous iterator."""

    def __init__(self, url: str, token: str | None = None, *, patience_s: float = 60.0) -> None:
        """As `Client` is made."""
        self._calls = Calls(url, patience_s)
        self._http = library().AsyncClient(**setup(self._calls.url, token))

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Hang up; jobs go on."""
        await self._http.aclose()

    async def upload(self, file: bytes | Path | str) -> str:
        """Inside: as `Client.upload`."""
        import asyncio  # late: `Client` does without it

        return await self._run(self._calls.upload(await asyncio.to_thread(blob_of, file)))

    async def submit(self, request: JobRequest | Mapping[str, Any], key: str | None = None) -> str:
        """Inside: as `Client.submit`."""
        return await self._run(self._calls.submit(request, key))

    async def jobs(
        self, state: str | None = None, label: str | None = None, most: int = 50, **wanted: Unpack[JobWishes]
    ) -> list[JobReply]:
        """Inside: as `Client.jobs`."""
        return await self._run(self._calls.jobs(most, {"state": state, "label": label, **wanted}))

    async def job(self, name: str) -> JobReply:
        """Inside: as `Client.job`."""
        return await self._run(self._calls.job(name))

    async def wait(self, name: str) -> JobReply:
        """Inside: as `Client.wait`."""
        async for _ in self.events(name, (await self.job(name)).events):
            pass
        return await self.job(name)

    async def cancel(self, name: str) -> str:
        """Inside: as `Client.cancel`."""
        return await self._run(self._calls.cancel(name))

    async def delete(self, name: str, *, purge: bool = False) -> str:
        """Inside: as `Client.delete`."""
        return await self._run(self._calls.delete(name, purge=purge))

    async def plan(self, name: str) -> bytes:
        """Inside: as `Client.plan`."""
        return await self._run(self._calls.file(name, "plan"))

    async def report(self, name: str) -> bytes:
        """Inside: as `Client.report`."""
        return await self._run(self._calls.file(name, "report"))

    async def trace(self, name: str) -> bytes:
        """Inside: as `Client.trace`."""
        return await self._run(self._calls.file(name, "trace"))

    async def explain(self, name: str) -> dict[str, Any]:
        """Inside: as `Client.explain`."""
        return await self._run(self._calls.told(name, "explain"))

    async def file(self, name: str, file: str) -> bytes:
        """Inside: as `Client.file`."""
        return await self._run(self._calls.file(name, f"files/{file}"))

    async def diff(self, first: str, second: str) -> dict[str, Any]:
        """Inside: as `Client.diff`."""
        return await self._run(self._calls.diff(first, second))

    async def events(self, name: str, after: int = 0) -> AsyncIterator[JobEvent]:
        """Inside: as `Client.events`."""
        import asyncio  # late: `Client` does without it

        followed = Followed(name, after)
        while not followed.over:
            try:
                async with self._http.stream("GET", followed.path, headers=followed.headers) as answer:
                    followed.begin()
                    if answer.is_success:
                        async for chunk in answer.aiter_bytes():
                            for event in followed.take(chunk):
                                yield event
                            self._calls.patience.answered()
                        reply = None
                    else:
                        await answer.aread()
                        reply = reply_of(answer)
            except library().TransportError as error:
                reply = unreached(error)
            if reply is not None:
                pause = judged(self._calls.url, self._calls.patience, reply)
            else:
                if not followed.over:
                    followed.ended(await self.job(followed.name))
                pause = None if followed.over else Pause(CUT_S)
            await asyncio.sleep(0.0 if pause is None else pause.seconds)

    async def _run(self, steps: Steps[T]) -> T:
        """Do what the steps ask for, to their end."""
        import asyncio  # late: `Client` does without it

        reply: Reply | None = None
        try:
            while True:
                step = steps.send(reply)  # type: ignore[arg-type]  # the first one is sent None
                reply = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    reply = await self._carried(step)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _carried(self, ask: Ask) -> Reply:
        import asyncio  # late: `Client` does without it

        async def chunks(path: Path) -> AsyncIterator[bytes]:
            with path.open("rb") as file:
                while chunk := await asyncio.to_thread(file.read, _CHUNK):
                    yield chunk

        body = chunks(ask.body) if isinstance(ask.body, Path) else ask.body
        sent = {"params": ask.params, "headers": body_headers(ask), "content": body}
        try:
            return reply_of(await self._http.request(ask.method, ask.path, **sent))
        except library().TransportError as error:
            return unreached(error)
