"""What a Ray cluster has beside its tasks: an actor through which work tells, and is sent signals."""

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
from pesto.core.executing.executor import WorkFiles
from pesto.core.executing.worker import BEGAN, SAID, SignalLatch
from pesto.core.executing.worker_process import resident_bytes
from pesto.core.files.disk import make_folder, write_atomic
from pesto.core.quantities import size

# MERGED from pesto.core.executing.ray_messages: The files of a work on Ray: carried there and back as bytes, since
# nodes share no folder.

_NEW, _MADE = ".pesto-work-", "pesto-work-"
_BLOBS, _OUT = "blobs", "out"


class FileCopies:
    """The folders of a work's files as its worker has them."""

    def __init__(self, files: WorkFiles, folder: Path) -> None:
        self._out = folder / _OUT
        self._seen: dict[str, tuple[int, ...] | None] = {}
        self._here = {files.folder: str(folder / _BLOBS), files.out: str(self._out)} if files.out else {}

    def here(self, folder: str) -> str:
        """Where a folder of whoever began the work is here; one that is none of the work's is where it is."""
        return self._here.get(folder, folder)

    def written(self) -> dict[str, bytes]:
        """What lies in the folder of results."""
        found = self._out.iterdir() if self._out.is_dir() else ()
        return {path.name: path.read_bytes() for path in found if path.is_file() and not path.name.startswith(".")}

    def changes(self, names: Iterable[str]) -> dict[str, bytes | None]:
        """What those of these results hold that have changed since this was asked last; None for one that is gone."""
        found: dict[str, bytes | None] = {}
        for name in names:
            path = self._out / name
            try:
                state: tuple[int, ...] | None = (path.stat().st_ino, path.stat().st_mtime_ns)
                data: bytes | None = path.read_bytes() if state != self._seen.get(name) else None
            except FileNotFoundError:
                state = data = None
            if state != self._seen.get(name):
                self._seen[name], found[name] = state, data
        return found


def read_inputs(files: WorkFiles) -> Iterator[tuple[str, bytes]]:
    """What a work reads; a file that cannot be read is left out, and the work says so."""
    for name in files.reads:
        try:
            data = (Path(files.folder) / name).read_bytes()
        except OSError:
            continue
        yield name, data


def write_results(files: WorkFiles, written: Mapping[str, bytes | None]) -> None:
    """Write what a work wrote elsewhere, and remove what it removed (None); FileError where that cannot be done."""
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
    """Copies of what a work reads, and a folder for what it writes; then they are removed."""
    if not files.out:
        yield FileCopies(files, Path())
        return
    with _locked_folder() as folder:
        for part in (_BLOBS, _OUT):
            (folder / part).mkdir()
        for name, data in read.items():
            (folder / _BLOBS / name).write_bytes(data)
        yield FileCopies(files, folder)


@contextmanager
def _locked_folder() -> Iterator[Path]:
    """A folder with a lock that ends with this process; those whose process was killed are removed first."""
    _tidy()
    made = Path(tempfile.mkdtemp(prefix=_NEW))
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Named so once it is locked: a process that tidies up meanwhile finds either no such name or a lock.
        folder = made.rename(made.with_name(_MADE + made.name.removeprefix(_NEW)))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _tidy() -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{_MADE}*"):
        with suppress(OSError):  # it is held, is not ours, or is gone
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)


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
