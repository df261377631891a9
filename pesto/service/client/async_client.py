"""The service's client for programs with an event loop."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from pesto.service.client.asking import Ask, Pause, Reply, Steps, judged
from pesto.service.client.calls import Calls, JobWishes, blob_of
from pesto.service.client.carrying import body_headers, library, reply_of, setup, unreached
from pesto.service.client.event_stream import CUT_S, Followed, JobEvent
from pesto.service.protocol.replies import JobReply
from pesto.verbs.jobs.request import JobRequest

T = TypeVar("T")
_CHUNK = 1 << 18


class AsyncClient:
    """`Client` for an event loop: the same methods, awaited; `events` is an asynchronous iterator."""

    def __init__(self, url: str, token: str | None = None, *, patience_s: float = 60.0) -> None:
        """As `Client` is made."""
        self._calls = Calls(url, patience_s)
        self._http = library().AsyncClient(**setup(self._calls.url, token))

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Hang up; jobs go on."""
        await self._http.aclose()

    async def upload(self, file: bytes | Path | str) -> str:
        """Inside: as `Client.upload`."""
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
                        came = None
                    else:
                        await answer.aread()
                        came = reply_of(answer)
            except library().TransportError as error:
                came = unreached(error)
            await asyncio.sleep(await self._until_next(followed, came))

    async def _until_next(self, followed: Followed, came: Reply | None) -> float:
        """Seconds before the next stream."""
        if came is not None:
            pause = judged(self._calls.url, self._calls.patience, came)
            return 0.0 if pause is None else pause.seconds
        if not followed.over:
            followed.ended(await self.job(followed.name))
        return 0.0 if followed.over else CUT_S

    async def _run(self, steps: Steps[T]) -> T:
        """Do what the steps ask for, to their end."""
        came: Reply | None = None
        try:
            while True:
                step = steps.send(came)  # type: ignore[arg-type]  # the first one is sent None
                came = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    came = await self._carried(step)
        except StopIteration as end:
            found: T = end.value
            return found

    async def _carried(self, ask: Ask) -> Reply:
        body = _chunks(ask.body) if isinstance(ask.body, Path) else ask.body
        sent = {"params": ask.params, "headers": body_headers(ask), "content": body}
        try:
            return reply_of(await self._http.request(ask.method, ask.path, **sent))
        except library().TransportError as error:
            return unreached(error)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk
