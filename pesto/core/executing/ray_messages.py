"""Messages and files between works on a Ray cluster and whoever began them.

An actor carries messages and signals; files are copied there and back as bytes, since nodes share no folder.
"""

import asyncio
import fcntl
import os
import queue
import shutil
import signal
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from pesto.core.errors import FileError
from pesto.core.executing.child_process import resident_bytes
from pesto.core.executing.executor import WorkFiles
from pesto.core.executing.worker import BEGAN, SAID, SignalLatch
from pesto.core.files.disk import make_folder, write_atomic
from pesto.core.quantities import size

_NEW, _MADE = ".pesto-work-", "pesto-work-"
_BLOBS, _OUT = "blobs", "out"


class FileCopies:
    """The folders of a work's files as its worker has them."""

    def __init__(self, files: WorkFiles, folder: Path) -> None:
        self._out = folder / _OUT
        self._seen: dict[str, tuple[int, ...] | None] = {}
        self._here = {files.folder: str(folder / _BLOBS), files.out: str(self._out)} if files.out else {}

    def here(self, folder: str) -> str:
        """Return the copy of a folder of whoever began the work; one that is none of the work's is where it is."""
        return self._here.get(folder, folder)

    def written(self) -> dict[str, bytes]:
        """Return the content of the files in the folder of results."""
        paths = self._out.iterdir() if self._out.is_dir() else ()
        return {path.name: path.read_bytes() for path in paths if path.is_file() and not path.name.startswith(".")}

    def changes(self, names: Iterable[str]) -> dict[str, bytes | None]:
        """Return the content of those of these results that have changed since the last call; None for a lost one."""
        changed: dict[str, bytes | None] = {}
        for name in names:
            path = self._out / name
            try:
                state: tuple[int, ...] | None = (path.stat().st_ino, path.stat().st_mtime_ns)
                data: bytes | None = path.read_bytes() if state != self._seen.get(name) else None
            except FileNotFoundError:
                state = data = None
            if state != self._seen.get(name):
                self._seen[name], changed[name] = state, data
        return changed


def read_inputs(files: WorkFiles) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a work reads; one that cannot be read is left out, and the work says so."""
    for name in files.reads:
        try:
            data = (Path(files.folder) / name).read_bytes()
        except OSError:
            continue
        yield name, data


def write_results(files: WorkFiles, written: Mapping[str, bytes | None]) -> None:
    """Write what a work wrote elsewhere, and remove what it removed (None). Raise FileError where that fails."""
    if files.out:
        make_folder(files.out)
    for name, data in written.items():
        if Path(name).name != name:
            raise FileError.build(f"{name!r} is no name of a result", remedy="run the same pesto on every node")
        if data is None:
            (Path(files.out) / name).unlink(missing_ok=True)
        else:
            write_atomic(Path(files.out) / name, data)


@contextmanager
def copied_files(files: WorkFiles, read: dict[str, bytes]) -> Iterator[FileCopies]:
    """Copy what a work reads, and make a folder for what it writes; remove both in the end.

    They lie in a folder with a lock that ends with this process; folders whose process was killed are removed first.
    """
    if not files.out:
        yield FileCopies(files, Path())
        return
    for left in Path(tempfile.gettempdir()).glob(f"{_MADE}*"):
        with suppress(OSError):  # it is held, is not ours, or is gone
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)
    hidden = Path(tempfile.mkdtemp(prefix=_NEW))
    descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Named so once it is locked: a process that tidies up meanwhile finds either no such name or a lock.
        folder = hidden.rename(hidden.with_name(_MADE + hidden.name.removeprefix(_NEW)))
        try:
            for part in (_BLOBS, _OUT):
                (folder / part).mkdir()
            for name, data in read.items():
                (folder / _BLOBS / name).write_bytes(data)
            yield FileCopies(files, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


MEMORY_EXCEEDED = b"f"
"""First byte of the message of a process that ends itself, since it holds too much memory."""
RETIRED = b"x"
"""First byte of the message of a process that ends itself at once, as an earlier work has retired it."""
EARLY_RESULTS = b"e"
"""First byte of a message with results which are to be there before the work's end, by name."""
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
        """Return all messages since the last time, as soon as there is one, or after `flush`."""
        await self._news.wait()
        self._news.clear()
        taken, self._messages = self._messages, []
        return taken

    async def flush(self) -> None:
        """Have `take` return, with or without messages."""
        self._news.set()

    async def send(self, key: str, signum: int) -> None:
        """Keep a signal for a work; 0 for one that has ended."""
        self._signals[key].put_nowait(signum)

    async def signal(self, key: str) -> int:
        """Return the next signal for a work, as soon as there is one."""
        signum = await self._signals[key].get()
        if signum == 0:
            self._signals.pop(key, None)
        return signum

    async def over(self, key: str) -> None:
        """Note that a work has lost its process: its call that waits for signals ends, as only so many may wait."""
        if (waiting := self._signals.pop(key, None)) is not None:
            waiting.put_nowait(0)


class SilentChannel:
    """The line of a work that is not live."""

    def __init__(self, cores: int, files: FileCopies) -> None:
        self.cores: int | None = cores
        self.here = files.here

    def tell(self, data: bytes) -> None:
        """Do nothing: nobody hears it."""

    def interrupted(self) -> signal.Signals | None:
        """Return None: a signal ends the process."""

    def retire(self) -> None:
        """Do nothing: such work leaves nothing broken."""


class ActorChannel:
    """The line of a work on Ray: by the post."""

    def __init__(self, key: str, post: Any, signals: SignalLatch, cores: int, files: FileCopies) -> None:
        self.cores: int | None = cores
        self.here = files.here
        self.retired = False
        """True if this process must do no further work."""
        self._key, self._post, self._signals = key, post, signals
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def tell(self, data: bytes) -> None:
        """Send a message."""
        self._messages.put(SAID + data)

    def interrupted(self) -> signal.Signals | None:
        """Return the signal that came, or None."""
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
            messages = [self._messages.get()]
            while not self._messages.empty():
                messages.append(self._messages.get())
            over = None in messages
            try:
                ray.get(self._post.tell.remote([(self._key, message) for message in messages if message is not None]))
            except ray.exceptions.RayError:  # nobody hears any more of this work
                os._exit(1)


@contextmanager
def receive_signals(key: str, post: Any, rss_bytes: int | None) -> Iterator[None]:
    """Send this process the signals for a work in the block, and end it when it holds more than it may."""
    import ray

    over = threading.Event()

    def forward_signals() -> None:
        while (signum := ray.get(post.signal.remote(key))) != 0:
            os.kill(os.getpid(), signum)

    def watch_memory() -> None:
        while rss_bytes is not None and not over.wait(_LOOK_S):
            if resident_bytes([os.getpid()])[os.getpid()] > rss_bytes:
                ray.get(post.tell.remote([(key, MEMORY_EXCEEDED + f"needed more than {size(rss_bytes)}".encode())]))
                os._exit(128 + signal.SIGKILL)

    ray.get(post.tell.remote([(key, BEGAN)]))
    listener = threading.Thread(target=forward_signals, daemon=True)
    watcher = threading.Thread(target=watch_memory, daemon=True)
    listener.start()
    watcher.start()
    try:
        yield
    finally:
        over.set()
        ray.get(post.send.remote(key, 0))
        listener.join()
        watcher.join()


@contextmanager
def send_early_results(key: str, post: Any, names: Sequence[str], files: FileCopies) -> Iterator[None]:
    """Send results of these names soon after they are written in the block: this process may be killed at any time."""
    import ray

    over = threading.Event()

    def send_changes() -> None:
        while names and not over.wait(_LOOK_S):
            if changed := files.changes(names):
                ray.get(post.tell.remote([(key, EARLY_RESULTS + msgspec.msgpack.encode(changed))]))

    sender = threading.Thread(target=send_changes, daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
