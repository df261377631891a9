"""`python -m pesto.verbs.compiling`: compile what this machine lacks, several parts at once; stdout says what is done.

One process a cache at a time; another waits, and says what the first has done. It ends when its stdin does.
"""

import fcntl
import gc
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress

from pesto.planning.solving import background_compiler
from pesto.verbs.compiling.parts import PARTS, Tiny, run

_AT_ONCE = 4
"""Processes at most: what can be done at once is not more."""
_LOOK_S = 0.1


def main() -> None:
    """Compile until no part is missing."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    said: set[str] = set()
    with (background_compiler.cache_folder() / "pesto-compiled.lock").open("w") as lock:
        while True:
            with suppress(BlockingIOError):  # another process compiles
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            _say(said)
            time.sleep(_LOOK_S)
        _say(said)
        for part in compile_missing(lock.fileno()):
            background_compiler.record_part(part)
            _say(said)


def compile_missing(lock: int) -> Iterator[str]:
    """Compile the parts that are not there, in processes of their own; the name of each when it is done.

    They do not hold the lock, a descriptor, which is to end with this process.
    """
    there = background_compiler.compiled_parts()
    todo = [name for name in PARTS if name not in there]
    running: dict[Future[None], str] = {}
    workers = min(os.cpu_count() or 1, _AT_ONCE)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(lock, os.getpid())) as pool:
        while todo or running:
            for name in [n for n in todo if there.issuperset(PARTS[n])][: workers - len(running)]:
                todo.remove(name)
                running[pool.submit(_compile, name)] = name
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                future.result()
                there.add(name)
                yield name


def _compile(name: str) -> None:
    """Compile a part in a worker process."""
    run(name, Tiny.make())


def _begin(lock: int, parent: int) -> None:
    """A worker leaves nothing behind, so it collects no garbage: a sixth of the time. Ctrl-C is its parent's."""
    os.close(lock)
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this worker once its parent is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _say(said: set[str]) -> None:
    """Print a line for each part that is compiled since the last call."""
    for part in [name for name in PARTS if name in background_compiler.compiled_parts() - said]:
        said.add(part)
        print(json.dumps({"done": part, "count": len(said), "of": len(PARTS)}), flush=True)


def _end_with_stdin() -> None:
    """End this process and its workers once its stdin is closed."""
    while os.read(0, 4096):  # sys.stdin would be locked when the interpreter ends
        pass
    os.killpg(0, signal.SIGKILL) if os.getpgrp() == os.getpid() else os._exit(1)


if __name__ == "__main__":
    main()
