"""A PostgreSQL server for a test or a measurement, by the system's binaries: started, killed, started again."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psycopg

PASSWORD = "sesame"  # noqa: S105 - of a server that lives for a test
NOBODY = 65534


def missing() -> str:
    """Why there can be no server here; empty when there can."""
    if not _program("initdb") or not _program("postgres"):
        return "no PostgreSQL among the system's packages"
    if os.getuid() == 0 and not shutil.which("setpriv"):
        return "PostgreSQL does not run as root, and there is no setpriv"
    return ""


def _program(name: str) -> str | None:
    result = shutil.which(name)
    if result or not shutil.which("pg_config"):
        return result
    folder = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
    return shutil.which(name, path=folder)


def _as_somebody(*words: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.getuid() == 0 else []
    return [*become, *words]


class PostgresServer:
    """On a free port of 127.0.0.1."""

    def __init__(self, *, durable: bool = False) -> None:
        """`durable`: on the disk, as where power may fail; otherwise in memory where that is possible."""
        shared = Path("/dev/shm")  # noqa: S108
        self._folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() and not durable else None))
        self._settings = ["-c", f"fsync={'on' if durable else 'off'}"]
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if os.getuid() == 0:
            for path in (self._folder, secret):
                os.chown(path, NOBODY, NOBODY)
        words = [_program("initdb") or "", "-D", str(self._folder / "data"), "-U", "postgres", "-A", "scram-sha-256"]
        words += [f"--pwfile={secret}", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(_as_somebody(*words), check=True, capture_output=True, cwd="/")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, again after a kill, and wait until it takes connections."""
        words = [_program("postgres") or "", "-D", str(self._folder / "data"), "-p", str(self.port), *self._settings]
        words += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        while not self._answers():
            if self._process is None or self._process.poll() is not None:  # children of one that was killed end soon
                with (self._folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(_as_somebody(*words), stderr=log, stdout=log, cwd="/")
            time.sleep(0.05)

    def kill(self) -> None:
        """As a power cut does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """Stop all of its processes, which stay connected and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the server's first process, and to those that it has started."""
        assert self._process is not None
        first = self._process.pid
        os.kill(first, number)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == first:
                    os.kill(int(stat.parent.name), number)

    def close(self) -> None:
        """End it, and remove its data."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        try:
            psycopg.connect(self.url, connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True
