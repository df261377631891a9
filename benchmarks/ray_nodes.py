"""A Ray cluster of two nodes on this machine, whose nodes and workers can be killed; its processes are its own."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_CPUS = 2
"""Of each node, whatever the machine has: room for as many jobs of one CPU each."""
_STORE_BYTES = 100_000_000
_PATIENCE_S = 300.0


class RayNodes:
    """A head and a second node, each a `ray start --block` with all that it starts."""

    def __init__(self, folder: Path) -> None:
        """Start both. `folder`: for their files; a short path, as they have sockets there."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        # A token of its own: which one Ray would take by itself depends on what ran on this machine before.
        self.environment = {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        """What whoever uses the cluster has in its environment."""
        self._folder, self._address = folder, address
        self.head: subprocess.Popen[bytes] | None = None
        self.second: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.kill_all()
            raise

    def start(self) -> None:
        """Start what does not run, and wait until its nodes are there."""
        if self.head is None:
            port = self._address.rpartition(":")[2]
            words = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._folder}"]
            self.head = self._started(words)
        if self.second is None:
            self.second = self._started([f"--address={self._address}"])

    def below(self) -> dict[int, str]:
        """All processes of both nodes, with their titles."""
        result: dict[int, str] = {}
        for node in (self.head, self.second):
            if node is not None:
                result |= _family(node.pid)
        return result

    def workers(self) -> list[int]:
        """The processes that are at a job."""
        return [pid for pid, title in self.below().items() if title.startswith("ray::_done")]

    def solvers(self) -> list[int]:
        """The processes that jobs have started."""
        return [pid for worker in self.workers() for pid in _family(worker) if pid != worker]

    def kill_second(self) -> None:
        """The second node with all that runs there, at once."""
        self.second = _killed(self.second)

    def kill_all(self) -> None:
        """The whole cluster, with what it remembers."""
        self.second = _killed(self.second)
        self.head = _killed(self.head)

    def _started(self, words: list[str]) -> "subprocess.Popen[bytes]":
        log = (self._folder.parent / "ray.log").open("ab")
        more = [f"--num-cpus={_CPUS}", f"--object-store-memory={_STORE_BYTES}", "--disable-usage-stats", "--block"]
        with log:
            node = subprocess.Popen(
                [str(Path(sys.executable).with_name("ray")), "start", *words, *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={k: v for k, v in (os.environ | self.environment).items() if k != "RAY_ADDRESS"},
            )  # fmt: skip
        try:
            self._await(node)
        except BaseException:
            _killed(node)
            raise
        return node

    def _await(self, node: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + _PATIENCE_S
        while not any("RuntimeEnvAgent" in title for title in _family(node.pid).values()):  # the last that it starts
            assert node.poll() is None, (self._folder.parent / "ray.log").read_text()[-2000:]
            assert time.monotonic() < until, "a Ray node does not start"
            time.sleep(0.2)


def _killed(node: "subprocess.Popen[bytes] | None") -> None:
    if node is None:
        return
    for pid in _family(node.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    node.wait()


def _family(root: int) -> dict[int, str]:
    """A process and all below it that have not ended, with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                row = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if row[0] != "Z":
                parents[int(entry.name)] = int(row[1])
    result, todo = dict[int, str](), [root] if root in parents else []
    while todo:
        pid = todo.pop()
        try:
            result[pid] = (
                (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue
        todo += [child for child, parent in parents.items() if parent == pid]
    return result
