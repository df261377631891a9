"""The process that a Ray cluster is reached by: `python -m pesto.core.executing.ray_process PARENT FD JOBS ROOM`.

Ray ends a process that has lost its cluster, so whoever begins works has another one for it. It reads what is asked of
a `RayCluster` from its connection, and writes to it what comes of that. It ends with its parent, or its connection, and
Ray ends the works of a process that has ended.
"""

import os
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection

import msgspec

from pesto.core.errors import Exit, PestoError
from pesto.core.executing.executor import Answered, Lost, Outcome, Said, Why, Work
from pesto.core.executing.ray_cluster import RayCluster
from pesto.core.executing.worker import die_with

_COLLECT_S = 1.0


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Begin a work."""

    work: Work


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Cancel a work with a signal."""

    key: str
    signum: int


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Leave the cluster, and end."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The cluster is reached, and runs so many works at a time."""

    slots: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It is not, and why."""

    error: str
    exit_code: int


class Told(msgspec.Struct, frozen=True, tag=True):
    """What work told."""

    key: str
    data: bytes


class Answer(msgspec.Struct, frozen=True, tag=True):
    """What work answered."""

    key: str
    data: bytes
    seconds: float
    reused: bool


class Loss(msgspec.Struct, frozen=True, tag=True):
    """How work was lost."""

    key: str
    why: Why
    detail: str
    seconds: float


Asked = Begin | Cancel | Leave
Heard = Ready | Refused | Told | Answer | Loss


def encoded(message: Asked | Heard) -> bytes:
    """A message as it is sent, either way."""
    return msgspec.msgpack.encode(message)


def main() -> None:
    """Reach the cluster, and do what is asked until the connection ends."""
    die_with(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # what Ray starts here has its own: a handler does not pass on
        signal.signal(number, lambda *_: None)
    connection = Connection(int(sys.argv[2]))
    try:
        cluster = RayCluster(int(sys.argv[3]) or None, room=sys.argv[4] == "room")
    except PestoError as error:
        connection.send_bytes(encoded(Refused(str(error), error.exit_code)))
        sys.exit(Exit.OK)
    connection.send_bytes(encoded(Ready(cluster.slots)))
    asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, asked, cluster), daemon=True).start()
    while _done(asked, cluster):
        for outcome in cluster.collect(_COLLECT_S):
            connection.send_bytes(encoded(_heard(outcome)))
    cluster.close()


def _listen(connection: Connection, asked: "queue.SimpleQueue[Asked]", cluster: RayCluster) -> None:
    decoder = msgspec.msgpack.Decoder(Asked)
    try:
        while True:
            asked.put(decoder.decode(connection.recv_bytes()))
            cluster.poke()
    except EOFError:
        os._exit(Exit.OK)


def _done(asked: "queue.SimpleQueue[Asked]", cluster: RayCluster) -> bool:
    """Do all that is asked; whether to go on."""
    while not asked.empty():
        match asked.get():
            case Begin(work):
                cluster.begin(work)
            case Cancel(key, signum):
                cluster.cancel(key, signal.Signals(signum))
            case Leave():
                return False
    return True


def _heard(outcome: Outcome) -> Heard:
    key = outcome.work.key
    match outcome:
        case Said(data=data):
            return Told(key, data)
        case Answered(data=data, seconds=seconds, reused=reused):
            return Answer(key, data, seconds, reused)
        case Lost(why=why, detail=detail, seconds=seconds):
            return Loss(key, why, detail, seconds)


if __name__ == "__main__":
    main()
