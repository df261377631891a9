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
from pesto.core.executing.executor import ProgressMessage, WorkFailure, WorkItem, WorkResult
from pesto.core.executing.ray_cluster import RayCluster
from pesto.core.executing.worker import die_with

_COLLECT_S = 1.0


class BeginCommand(msgspec.Struct, frozen=True, tag=True):
    """Begin a work."""

    work: WorkItem


class CancelCommand(msgspec.Struct, frozen=True, tag=True):
    """Cancel a work with a signal."""

    key: str
    signum: int


class LeaveCommand(msgspec.Struct, frozen=True, tag=True):
    """Leave the cluster, and end."""


class ClusterReady(msgspec.Struct, frozen=True, tag=True):
    """The cluster is reached."""

    slots: int


class ClusterRefused(msgspec.Struct, frozen=True, tag=True):
    """The cluster cannot be reached, and why."""

    error: str
    exit_code: int


Command = BeginCommand | CancelCommand | LeaveCommand
ClusterEvent = ClusterReady | ClusterRefused | ProgressMessage | WorkResult | WorkFailure


def encode_message(message: Command | ClusterEvent) -> bytes:
    """Return a message as it is sent, either way."""
    return msgspec.msgpack.encode(message)


def main() -> None:
    """Reach the cluster, and do what is commanded until the connection ends."""
    die_with(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # what Ray starts here has its own: a handler does not pass on
        signal.signal(number, lambda *_: None)
    connection = Connection(int(sys.argv[2]))
    try:
        cluster = RayCluster(int(sys.argv[3]) or None, room=sys.argv[4] == "room")
    except PestoError as error:
        connection.send_bytes(encode_message(ClusterRefused(str(error), error.exit_code)))
        sys.exit(Exit.OK)
    connection.send_bytes(encode_message(ClusterReady(cluster.slots)))
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def listen() -> None:
        decoder = msgspec.msgpack.Decoder(Command)
        try:
            while True:
                commands.put(decoder.decode(connection.recv_bytes()))
                cluster.poke()
        except EOFError:
            os._exit(Exit.OK)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        while not commands.empty():
            match commands.get():
                case BeginCommand(work):
                    cluster.begin(work)
                case CancelCommand(key, signum):
                    cluster.cancel(key, signal.Signals(signum))
                case LeaveCommand():
                    cluster.close()
                    return
        for outcome in cluster.collect(_COLLECT_S):
            connection.send_bytes(encode_message(outcome))


if __name__ == "__main__":
    main()
