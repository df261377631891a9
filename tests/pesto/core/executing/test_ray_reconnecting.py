"""A cluster that is lost ends a process of its own, and nothing else: a stand-in for Ray loses it at a sign."""

import socket

import pytest

from pesto.core.errors import FileError, SolverError, UsageError
from pesto.core.executing import ray_reconnecting
from pesto.core.executing.executor import WorkFailure, WorkFiles, WorkItem, WorkResult
from pesto.core.executing.ray_cluster import cpus_per_work
from pesto.core.executing.ray_messages import FileCopies, write_results
from pesto.core.executing.ray_reconnecting import ReconnectingRayCluster
from pesto.core.files.disk import write_atomic

RAY = """
import os
import time
from pathlib import Path
from types import SimpleNamespace

here = Path(__file__).parent
exceptions = SimpleNamespace(RayError=KeyError)

def init(**_):
    if (here / "away").exists():
        raise ConnectionError("nobody is there")

def nodes():
    return [{"Alive": True, "Resources": {"CPU": 2.0}}]

def remote(**_):
    return lambda _: SimpleNamespace(remote=lambda work, *_: work.key)

def wait(references, *, num_returns, timeout):
    if (here / "lost").exists():
        print("Ray says much")
        os._exit(1)
    done = [key for key in references if (here / key).exists()]
    time.sleep(0.0 if done else min(timeout, 0.02))
    return done[:1], []

def get(key):
    return key.encode(), {"result": b"of " + key.encode()}, False

def shutdown():
    (here / "left").touch()
"""


@pytest.fixture
def ray(tmp_path, monkeypatch):
    """The folder of the stand-in."""
    folder = tmp_path / "ray"
    folder.mkdir()
    (folder / "ray.py").write_text(RAY)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(ray_reconnecting, "RECONNECT_S", 0.05)
    return folder


def work(key, out=""):
    return WorkItem(key=key, entry="nobody:runs_it", data=b"", files=WorkFiles(folder="", out=str(out)))


def test_what_ran_on_a_lost_cluster_is_lost_for_no_fault_of_its_own_and_the_next_runs(ray, tmp_path):
    cluster = ReconnectingRayCluster(2)
    assert cluster.slots == 2
    for name in ("away", "lost"):
        (ray / name).touch()
    cluster.begin(work("a"))
    cluster.begin(work("b"))
    lost = cluster.collect()
    assert [(type(o), o.key, o.why, o.detail) for o in lost] == [
        (WorkFailure, key, "place", "the Ray cluster was lost") for key in "ab"
    ]
    assert (cluster.slots, cluster.cancel("a"), cluster.collect(0.2)) == (0, False, [])
    for name in ("away", "lost"):
        (ray / name).unlink()
    assert cluster.collect() == []  # it waits for the cluster
    assert cluster.slots == 2
    cluster.begin(work("c", tmp_path / "out"))
    (ray / "c").touch()
    (answer,) = cluster.collect()
    assert isinstance(answer, WorkResult) and answer.data == b"c"
    assert (tmp_path / "out" / "result").read_bytes() == b"of c"
    cluster.close()
    assert (ray / "left").exists()


def test_a_poke_ends_a_wait(ray):
    cluster = ReconnectingRayCluster(1)
    cluster.begin(work("a"))
    cluster.poke()
    assert cluster.collect() == []
    cluster.close()
    assert (ray / "left").exists()


def test_a_cluster_that_cannot_be_used_is_refused_at_once(ray, monkeypatch):
    with pytest.raises(UsageError, match="3 jobs on a cluster of 2 CPUs"):
        ReconnectingRayCluster(3)
    (ray / "away").touch()
    with pytest.raises(FileError, match="no Ray cluster: nobody is there - check RAY_ADDRESS"):
        ReconnectingRayCluster(1)
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(FileError, match=f"nobody answers at '?{address}'? - check RAY_ADDRESS"):
            ReconnectingRayCluster(1)
    monkeypatch.delenv("RAY_ADDRESS")
    (ray / "ray.py").write_text("raise ImportError")
    with pytest.raises(SolverError, match=r"pip install -e '\.\[ray\]'"):
        ReconnectingRayCluster(1)


def test_works_find_room_on_whole_nodes():
    cases = (([4, 4, 4], 2), ([1, 1], 1), ([3, 3], 2), ([4, 2], 2))
    assert [cpus_per_work(nodes, slots) for nodes, slots in cases] == [
        4, 1, 3, 2,
    ]  # fmt: skip
    assert cpus_per_work([2], 4) == 1  # some wait


def test_a_result_with_a_folder_is_refused(tmp_path):
    with pytest.raises(FileError, match="run the same pesto"):
        write_results(WorkFiles(folder="", out=str(tmp_path)), {"../escaped": b""})
    assert not list(tmp_path.parent.glob("escaped"))


def test_results_are_sent_once_for_each_change(tmp_path):
    """A copy of the folder elsewhere is as the first, also once a file is gone."""
    files = WorkFiles(folder="", out=str(tmp_path / "there"))
    copies, out = FileCopies(files, tmp_path), tmp_path / "out"
    out.mkdir()
    assert copies.changes(("a", "b")) == {}
    write_atomic(out / "a", b"1")
    assert copies.changes(("a", "b")) == {"a": b"1"}
    write_atomic(out / "a", b"2")
    write_atomic(out / "b", b"3")
    changed = copies.changes(("a", "b"))
    assert changed == {"a": b"2", "b": b"3"} and copies.changes(("a", "b")) == {}
    write_results(files, changed)
    (out / "a").unlink()
    changed = copies.changes(("a", "b"))
    assert changed == {"a": None}
    write_results(files, changed)
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "there").iterdir()] == [("b", b"3")]
