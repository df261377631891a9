"""Small graphs and clusters that several tests share."""

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, is_hypothesis_test
from hypothesis import settings as hypothesis_settings
from solver_processes import SUBPROCESS

from pesto.core.cluster import Cluster, Device, Path
from pesto.core.costs import GIVEN, Costs
from pesto.core.graph import Graph
from pesto.core.source import Origin
from pesto.planning.solving import tracker
from solvers.process import parent

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
"""Which random cases a test takes: few, always the same (dev), twice as many others (ci), a night's (night)."""
TIMES = {"dev": 1, "ci": 2, "night": 100}
"""Multiples of the cases of a default run."""
EXAMPLES = 40
"""Examples of one of hypothesis's tests in a default run."""

for name, times in TIMES.items():
    hypothesis_settings.register_profile(
        name,
        max_examples=EXAMPLES * times,
        derandomize=name == "dev",  # the default run is the same everywhere, whatever an earlier one had found
        deadline=None,  # no test depends on how busy the machine is
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
hypothesis_settings.load_profile(PROFILE)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without Python's garbage collector, and exempt from it what lives until the tests end.

    It would go through all modules and tests again and again: a third of the time of collecting them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """In a profile with many random cases, those tests are properties."""
    for item in items:
        if PROFILE != "dev" and ("seeds" in item.fixturenames or is_hypothesis_test(item.obj)):
            item.add_marker(pytest.mark.property)


@pytest.fixture(scope="session")
def seeds() -> Callable[[int], range]:
    """The seeds that a test with so many random cases in a default run takes in this one: in ci, others than that."""
    first = 1 if PROFILE == "ci" else 0
    return lambda cases: range(first * cases, (first + TIMES[PROFILE]) * cases)


def pytest_configure() -> None:
    """oneDNN off, as `pesto.tf.tensorflow_start` has it, whichever test imports TensorFlow first: it decides bits.

    And the oracles for programs that tests start, as pyproject.toml has them for the tests themselves.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    oracles = str(FilePath(__file__).with_name("oracles"))
    os.environ["PYTHONPATH"] = os.pathsep.join([oracles, *filter(None, [os.environ.get("PYTHONPATH")])])


def small_graph(ops: Sequence[Mapping[str, Any]], *, source: str = "test") -> Graph:
    """A graph of ops {name, inputs: [names], bytes, s, kinds, group, param, launches, control}; one output each."""
    index = {op["name"]: i for i, op in enumerate(ops)}
    edges = [(index[a], i) for i, op in enumerate(ops) for a in op.get("inputs", ())]
    control = [(index[a], i) for i, op in enumerate(ops) for a in op.get("control", ())]
    groups = {g: k for k, g in enumerate(dict.fromkeys(op["group"] for op in ops if "group" in op))}
    src = np.array([a for a, _ in edges], dtype=np.int64)
    return Graph(
        names=tuple(index),
        types=("Op",),
        type_of=np.zeros(len(ops), dtype=np.int64),
        tensor_op=np.arange(len(ops)),
        tensor_bytes=np.array([op.get("bytes", 0) for op in ops]),
        src=src,
        dst=np.array([b for _, b in edges], dtype=np.int64),
        tensor=src,
        control_src=np.array([a for a, _ in control], dtype=np.int64),
        control_dst=np.array([b for _, b in control], dtype=np.int64),
        group=np.array([groups.get(op.get("group"), -1) for op in ops]),
        kinds=("cpu", "gpu"),
        runs_on=np.array([[kind in op.get("kinds", ("cpu", "gpu")) for kind in ("cpu", "gpu")] for op in ops]),
        param_bytes=np.array([op.get("param", 0) for op in ops]),
        flops=np.zeros(len(ops)),
        moved_bytes=np.zeros(len(ops), dtype=np.int64),
        launches=np.array([op.get("launches", True) for op in ops]),
        given_kinds=("gpu", "cpu"),
        given_s=np.array([[op.get("s", 1e-6)] * 2 for op in ops]),
        source=source,
    )


def small_cluster(*, gpus: int = 2, memory: int = 10**9, cores: int = 1, path: Path | None = None) -> Cluster:
    """A host and GPUs, every pair joined by a link of its own in each direction."""
    devices = [Device(name="cpu:0", kind="cpu", preset="x", host=0, memory_bytes=10**12, cores=cores)]
    devices += [Device(name=f"gpu:{k}", kind="gpu", preset="y", host=0, memory_bytes=memory) for k in range(gpus)]
    pairs = [(a, b) for a in range(gpus + 1) for b in range(gpus + 1) if a != b]
    cost = path or Path(latency_s=1e-6, s_per_byte=1e-9)
    link = {pair: k for k, pair in enumerate(pairs)}
    rows = [
        tuple(None if a == b else replace(cost, links=(link[a, b],)) for b in range(gpus + 1)) for a in range(gpus + 1)
    ]
    names = tuple(f"{a}>{b}" for a, b in pairs)
    return Cluster(
        name="test",
        devices=tuple(devices),
        links=names,
        paths=tuple(rows),
        source="file test.toml",
        origin=Origin(kind="file"),
    )


def given_costs(graph: Graph, cluster: Cluster) -> Costs:
    """The times that a small graph gives, on every device of a kind that the op runs on."""
    kinds = [graph.kinds.index(d.kind) for d in cluster.devices]
    seconds = np.where(graph.runs_on[:, kinds], graph.given_s[:, :1], np.nan)
    return Costs(compute_s=seconds, origin=np.full(graph.ops, GIVEN), source="test")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a solver that goes on for an hour beyond its limit is hung, however busy the machine is.

    And no quick candidate is left out of a solve because others took long.
    """
    monkeypatch.setattr(parent, "GRACE_S", 3600.0)
    monkeypatch.setattr(tracker, "HURRY_S", 3600.0)


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solvers' processes are forked from one that has loaded what they share, which takes longer than most solves."""
    monkeypatch.setattr(parent, "subprocess", SUBPROCESS)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Signals are Python's own in every test, whatever a command line that ran in this process made of them.

    Nor is Ctrl-C ignored where the tests run in the background of a shell, which hands that on.
    """
    terminate = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, terminate)


@pytest.fixture
def make_graph() -> Callable[..., Graph]:
    """See `small_graph`."""
    return small_graph


@pytest.fixture
def make_cluster() -> Callable[..., Cluster]:
    """See `small_cluster`."""
    return small_cluster


@pytest.fixture
def make_costs() -> Callable[..., Costs]:
    """See `given_costs`."""
    return given_costs
