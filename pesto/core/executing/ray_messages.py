"""What a Ray cluster has beside its tasks: an actor through which work tells, and is sent signals."""

import asyncio
import os
import queue
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from pesto.core.executing.memory_use import resident_bytes
from pesto.core.executing.ray_files import FileCopies
from pesto.core.executing.worker_channel import BEGAN, SAID, SignalLatch
from pesto.core.quantities import size

MEMORY_EXCEEDED = b"f"
"""What the message of a process begins with that ends itself, since it holds too much memory."""
RETIRED = b"x"
"""First byte of the message of a process that ends itself at once, as an earlier work has retired it."""
EARLY_RESULTS = b"e"
"""What a message begins with that has results which are to be there before the work's end, by name."""
Message = tuple[str, bytes]
_LOOK_S = 0.25


class MessageActor:
    """An actor beside the process that begins works: messages from all works, and signals for each."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._news = asyncio.Event()
        self._signals: dict[str, asyncio.Queue[int]] = defaultdict(asyncio.Queue)

    async def tell(self, messages: list[Message]) -> None:
        """Take messages in; a work waits until its last ones are here, so that they come in its order."""
        self._messages += messages
        self._news.set()

    async def take(self) -> list[Message]:
        """All that was told since the last time, as soon as there is something, or `flush` asks for it."""
        await self._news.wait()
        self._news.clear()
        taken, self._messages = self._messages, []
        return taken

    async def flush(self) -> None:
        """Have `take` return, with or without messages."""
        self._news.set()

    async def send(self, key: str, signum: int) -> None:
        """A signal for a work; 0 for one that has ended."""
        self._signals[key].put_nowait(signum)

    async def signal(self, key: str) -> int:
        """The next signal for a work, as soon as there is one."""
        signum = await self._signals[key].get()
        if signum == 0:
            self._signals.pop(key, None)
        return signum

    async def over(self, key: str) -> None:
        """A work has lost its process: who waited for its signals is not there any more, and is one of so many."""
        if (waiting := self._signals.pop(key, None)) is not None:
            waiting.put_nowait(0)


class SilentChannel:
    """The line of a work that is not live."""

    def __init__(self, cores: int, files: FileCopies) -> None:
        self.cores: int | None = cores
        self.here = files.here

    def tell(self, data: bytes) -> None:
        """Nobody hears it."""

    def interrupted(self) -> signal.Signals | None:
        """No signal is remembered: it ends the process."""

    def retire(self) -> None:
        """Do nothing: such work leaves nothing broken."""


class ActorChannel:
    """The line of a work on Ray: by the post."""

    def __init__(self, key: str, post: Any, signals: SignalLatch, cores: int, files: FileCopies) -> None:
        self.cores: int | None = cores
        self.here = files.here
        self.retired = False
        """Return True if this process must do no further work."""
        self._key, self._post, self._signals = key, post, signals
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def tell(self, data: bytes) -> None:
        """Send a message."""
        self._messages.put(SAID + data)

    def interrupted(self) -> signal.Signals | None:
        """The signal that came."""
        return self._signals.came

    def retire(self) -> None:
        """Have this process end before its next work."""
        self.retired = True

    def close(self) -> None:
        """Wait until all is sent."""
        self._messages.put(None)
        self._sender.join()

    def _send(self) -> None:
        import ray

        over = False
        while not over:
            found = [self._messages.get()]
            while not self._messages.empty():
                found.append(self._messages.get())
            over = None in found
            try:
                ray.get(self._post.tell.remote([(self._key, message) for message in found if message is not None]))
            except ray.exceptions.RayError:  # nobody hears any more of this work
                os._exit(1)


@contextmanager
def receive_signals(key: str, post: Any, rss_bytes: int | None) -> Iterator[None]:
    """Meanwhile this process is sent the signals for a work, and ends when it holds more than it may."""
    import ray

    over = threading.Event()
    ray.get(post.tell.remote([(key, BEGAN)]))
    listener = threading.Thread(target=_forward_signals, args=(key, post), daemon=True)
    listener.start()
    watcher = threading.Thread(target=_watch_memory, args=(key, post, rss_bytes, over), daemon=True)
    if rss_bytes is not None:
        watcher.start()
    try:
        yield
    finally:
        over.set()
        ray.get(post.send.remote(key, 0))
        listener.join()
        if rss_bytes is not None:
            watcher.join()


@contextmanager
def send_early_results(key: str, post: Any, names: Sequence[str], files: FileCopies) -> Iterator[None]:
    """Meanwhile send results of these names soon after they were written: this process may be killed at any time."""
    over = threading.Event()
    sender = threading.Thread(target=_send_changes, args=(key, post, names, files, over), daemon=True)
    if names:
        sender.start()
    try:
        yield
    finally:
        over.set()
        if names:
            sender.join()


def _send_changes(key: str, post: Any, names: Sequence[str], files: FileCopies, over: threading.Event) -> None:
    import ray

    while not over.wait(_LOOK_S):
        changed = files.changes(names)
        if changed:
            ray.get(post.tell.remote([(key, EARLY_RESULTS + msgspec.msgpack.encode(changed))]))


def _forward_signals(key: str, post: Any) -> None:
    import ray

    while (signum := ray.get(post.signal.remote(key))) != 0:
        os.kill(os.getpid(), signum)


def _watch_memory(key: str, post: Any, most: int, over: threading.Event) -> None:
    import ray

    while not over.wait(_LOOK_S):
        if resident_bytes([os.getpid()])[os.getpid()] > most:
            ray.get(post.tell.remote([(key, MEMORY_EXCEEDED + f"needed more than {size(most)}".encode())]))
            os._exit(128 + signal.SIGKILL)
