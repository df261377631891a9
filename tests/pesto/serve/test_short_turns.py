"""Threads that answer requests run in short turns, and no other thread of their process does."""

import os
import platform
import re
import threading
from contextlib import closing
from pathlib import Path

import pytest

from pesto.serve.short_turns import TURN_NS, take_short_turns
from pesto.serve.store.group_commit import Writer
from pesto.serve.store.ledger import Ledger
from pesto.serve.store.sqlite_file import connected


def turn(thread=None):
    """Nanoseconds of a thread's turns, as Linux tells them; None where it does not."""
    which = "thread-self" if thread is None else f"self/task/{thread}"
    try:
        lines = Path(f"/proc/{which}/sched").read_text().splitlines()
    except OSError:
        return None
    found = [line.split(":")[1] for line in lines if line.startswith("se.slice")]
    return int(found[0]) if found else None


KNOWN = turn() is not None and tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 12)
pytestmark = pytest.mark.skipif(not KNOWN, reason="this system grants no short turns, or does not tell of them")


def within_a_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_the_calling_thread_alone_and_its_niceness_stays():
    before, nice = turn(), os.getpriority(os.PRIO_PROCESS, 0)

    def work():
        os.setpriority(os.PRIO_PROCESS, 0, nice + 1)
        take_short_turns()
        return turn(), os.getpriority(os.PRIO_PROCESS, 0)

    assert within_a_thread(work) == (TURN_NS, nice + 1)
    assert turn() == before != TURN_NS


def test_a_writer_takes_them(tmp_path):
    database = connected(tmp_path)
    with closing(Writer(database, Ledger(database))) as writer:
        assert writer.do(lambda _: turn()) == TURN_NS
