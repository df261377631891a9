"""The service's client for programs without an event loop."""

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from pesto.service.client.asking import Ask, Pause, Reply, Steps, judged
from pesto.service.client.calls import Calls, JobWishes, blob_of
from pesto.service.client.carrying import body_headers, library, reply_of, setup, unreached
from pesto.service.client.event_stream import CUT_S, Followed, JobEvent
from pesto.service.protocol.replies import JobReply
from pesto.verbs.jobs.request import JobRequest

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
        """Itself."""
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
        """What a job tells, from event `after` + 1 to its end: each once, also where the server is started anew."""
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
        came: Reply | None = None
        try:
            while True:
                step = steps.send(came)  # type: ignore[arg-type]  # the first one is sent None
                came = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    came = self._carried(step)
        except StopIteration as end:
            found: T = end.value
            return found

    def _carried(self, ask: Ask) -> Reply:
        with ExitStack() as stack:
            body = stack.enter_context(ask.body.open("rb")) if isinstance(ask.body, Path) else ask.body
            try:
                return reply_of(
                    self._http.request(ask.method, ask.path, params=ask.params, headers=body_headers(ask), content=body)
                )
            except library().TransportError as error:
                return unreached(error)
