"""Files of one's own times: what they say, which row holds, what they are labelled as, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pesto
from pesto.core.cluster import Cluster
from pesto.core.costs import GIVEN, MODELLED, Costs
from pesto.core.costs.analytical import model_costs
from pesto.core.costs.user_times import apply_user_times, parse_user_times
from pesto.core.errors import FileError, InputError, UsageError, VerificationError
from pesto.core.files import graph_file
from pesto.core.graph import Graph
from pesto.inputs.cluster_file import load_cluster

TYPES = {"first": "MatMul", "second": "MatMul", "add": "Add", "read": "Read"}
"""A chain of ops; the last can run on the CPU alone."""


@pytest.fixture
def graph() -> Graph:
    ops: list[dict[str, object]] = []
    for name, of_type in TYPES.items():
        more = {"inputs": [ops[-1]["name"]]} if ops else {}
        runs_on = ["cpu"] if name == "read" else ["cpu", "gpu"]
        ops.append({"name": name, "type": of_type, "outputs": [4], "flops": 10**9, "runs_on": runs_on} | more)
    return graph_file.loads(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}).encode(), "step")


@pytest.fixture
def cluster() -> Cluster:
    return load_cluster("v100x2-nvlink")


def with_own(graph: Graph, cluster: Cluster, text: str) -> Costs:
    return apply_user_times(graph, cluster, parse_user_times(text.encode(), "own.csv"), model_costs(graph, cluster))


def on(cluster: Cluster, device: str) -> int:
    return [d.name for d in cluster.devices].index(device)


def test_a_name_holds_before_a_type_and_seconds_count_as_given(graph: Graph, cluster: Cluster) -> None:
    """On both GPUs; on the CPU, where these ops are not placed, and of other ops nothing changes."""
    known = model_costs(graph, cluster)
    found = with_own(graph, cluster, "type,name,seconds\nMatMul,,0.002\nMatMul,second,0.005\n")
    for gpu in (on(cluster, "gpu:0"), on(cluster, "gpu:1")):
        assert found.compute_s[:2, gpu].tolist() == [0.002, 0.005]
        assert found.compute_s[2, gpu] == known.compute_s[2, gpu]
    assert found.compute_s[:, on(cluster, "cpu:0")].tolist() == known.compute_s[:, on(cluster, "cpu:0")].tolist()
    assert found.origin.tolist() == [GIVEN, GIVEN, MODELLED, MODELLED]
    assert found.basis == "mixed: 2 of 4 ops given, 2 modelled"
    assert found.source.startswith("own times of 2 of 4 ops by own.csv (sha256 ")
    assert found.source.endswith(f", else {known.source}") and not found.note


def test_a_scale_is_of_what_is_known_and_keeps_its_origin(graph: Graph, cluster: Cluster) -> None:
    """A model that is scaled is still a model."""
    known = model_costs(graph, cluster)
    found = with_own(graph, cluster, "type,scale\nMatMul,1.5\n")
    np.testing.assert_array_equal(found.compute_s[:2, 1:], 1.5 * known.compute_s[:2, 1:])
    np.testing.assert_array_equal(found.compute_s[2:], known.compute_s[2:])
    assert found.basis == "modelled" and "own times of 2 of 4 ops (2 of them scaled)" in found.source


def test_a_preset_holds_before_a_kind_and_that_before_all(graph: Graph, cluster: Cluster) -> None:
    """One op by its preset, one by its kind, one everywhere that it may be placed; the order of rows says nothing."""
    text = "name,device,seconds\nfirst,V100,1\nfirst,gpu,2\nfirst,,3\nsecond,gpu,2\nsecond,,3\nadd,,3\nadd,K80,9\n"
    head, *rows = text.splitlines()
    for lines in (rows, rows[::-1]):
        found = with_own(graph, cluster, "\n".join([head, *lines]))
        assert found.compute_s[:3, on(cluster, "gpu:1")].tolist() == [1, 2, 3]
        assert "1 of 7 rows speak of nothing here, as op 'add', line" in found.note


def test_seconds_scale_with_the_speed_of_the_device(graph: Graph, cluster: Cluster) -> None:
    """As profiles do, so that sweeps work on them."""
    quick = replace(cluster, devices=tuple(replace(d, speed=4.0) for d in cluster.devices))
    assert with_own(graph, quick, "name,seconds\nfirst,1\n").compute_s[0, on(quick, "gpu:0")] == 0.25


def test_an_op_that_is_given_on_one_of_two_models_is_not_given(graph: Graph, cluster: Cluster) -> None:
    """As for profiles: it has to hold wherever the op may be placed."""
    k = on(cluster, "gpu:1")
    mixed = replace(
        cluster, devices=tuple(replace(d, preset="K80") if i == k else d for i, d in enumerate(cluster.devices))
    )
    found = with_own(graph, mixed, "name,device,seconds\nfirst,K80,1\n")
    assert found.compute_s[0, k] == 1 and found.compute_s[0, on(mixed, "gpu:0")] < 1
    assert found.origin.tolist() == [MODELLED] * 4


def test_what_is_said_again_changes_nothing(graph: Graph, cluster: Cluster) -> None:
    """Empty numbers neither; the result says that the file has nothing to add."""
    known = model_costs(graph, cluster)
    same = known.compute_s[0, on(cluster, "gpu:0")]
    found = with_own(graph, cluster, f"name,seconds,origin\nfirst,{float(same)!r},modelled\nadd,,modelled\n")
    assert found.source == known.source and found.origin.tolist() == known.origin.tolist()
    np.testing.assert_array_equal(found.compute_s, known.compute_s)
    assert found.note == "own.csv: all its times are those that hold without it"


def test_names_that_a_spreadsheet_would_compute_are_found(cluster: Cluster) -> None:
    """The apostrophe before them is no part of the name; a byte order mark is none of the header."""
    ops = [{"name": "=SUM(A1)", "type": "A", "outputs": [4], "runs_on": ["gpu"]}]
    graph = graph_file.loads(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": ops}).encode(), "step")
    assert with_own(graph, cluster, "\ufeffname,seconds\r\n'=SUM(A1),0.5\r\n").compute_s[0, 1] == 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no line of column names"),
        ("name,second\na,1", r"unknown column 'second' - did you mean seconds\? known: name, type"),
        ("type,ops,total_s\na,1,1", "unknown column 'ops'"),
        ("name;seconds\na;1", "column 'name;seconds' - separate with commas"),
        ("name\tseconds\na\t1", "column .* - separate with commas"),
        ("name,name,seconds\na,b,1", "two columns are named 'name'"),
        ("seconds\n1", "no column 'name' or 'type' - add one"),
        ("name,flops\na,1", "no column 'seconds' or 'scale' - add one"),
        ("name,seconds\na,0,038", r"line 2: 3 cells under 2 columns - separate with commas, .* with a point"),
        ("name,seconds\n\na,-1", r"line 3: seconds is '-1' - write seconds, such as 0.038 for 38 ms, from 0 to 86400"),
        ("name,seconds\na,nan", "seconds is 'nan'"),
        ("name,seconds\na,inf", "seconds is 'inf'"),
        ("name,seconds\na,1e9", "seconds is '1e9'"),
        ("name,seconds\na,38 ms", "seconds is '38 ms'"),
        ("name,seconds\na,1_0", "seconds is '1_0'"),
        ("type,scale\na,1e6", "scale is '1e6' - write a factor, such as 1.5, from 0 to 1000"),
        ("name,seconds,scale\na,1,2", "line 2: both seconds and scale - leave one empty"),
        ("name,seconds\n,1", "line 2: neither a name nor a type"),
        ("name,seconds\na,", "no row gives seconds or a scale"),
        ("name,seconds\na,1\nb,1\na,2", "line 4: op 'a' has a number in line 2 already - leave one"),
        ("type,scale\na,1\na,1", "line 3: type 'a' has a number in line 2 already"),
        ('name,seconds\na,1\n"a"b,1', "line 3: not CSV"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    """One line with the file, where there is one the line, and a remedy."""
    with pytest.raises(InputError, match=said) as caught:
        parse_user_times(text.encode(), "own.csv")
    assert str(caught.value).startswith("own.csv") and " - " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,seconds\nthird,1", "none of its rows is of an op or a type of step on v100x2-nvlink - take names"),
        ("name,device,seconds\nread,gpu,1", "none of its rows"),
        ("type,device,seconds\nMatMul,K80,1", "none of its rows"),
        ("name,device,seconds\nadd,gpu:0,1", r"line 2: device 'gpu:0' is no kind of device and no preset - .*known: "),
        ("name,type,seconds\nadd,MatMul,1", "line 2: op 'add' is of type Add and not MatMul - correct the type"),
    ],
)
def test_what_does_not_fit_the_step_is_refused(graph: Graph, cluster: Cluster, text: str, said: str) -> None:
    """Nothing that matches, an op that cannot run there, another's op, an unknown device."""
    with pytest.raises(InputError, match=said):
        with_own(graph, cluster, text)


def test_bytes_that_are_no_text_and_files_that_are_not_there(graph: Graph, tmp_path: Path) -> None:
    """As for all files."""
    with pytest.raises(InputError, match=r"own.csv: not UTF-8 text \(byte 5\) - save the file"):
        parse_user_times(b"name,\xff\n", "own.csv")
    with pytest.raises(FileError, match="no such file"):
        pesto.solve(graph, costs=tmp_path / "own.csv", time_limit_s=0, solver="list")


def test_plans_are_checked_with_the_same_file_alone(graph: Graph, tmp_path: Path) -> None:
    """Under whatever name; without it, and with other times, one line says so. What if is asked with other times."""
    file, moved, other = (tmp_path / name for name in ("own.csv", "moved.CSV", "other.csv"))
    file.write_text("name,seconds\nfirst,0.5\n")
    moved.write_bytes(file.read_bytes())
    other.write_text("name,seconds\nfirst,0.25\n")
    plan = pesto.solve(graph, costs=str(file), time_limit_s=0, solver="list")
    assert 0.5 < plan.makespan_s < 0.6 and plan.provenance.costs_basis == "mixed: 1 of 4 ops given, 3 modelled"
    assert "costs" not in pesto.check(plan, graph, costs=file)
    assert "moved.CSV" not in pesto.check(plan, graph, costs=moved)["costs"]
    with pytest.raises(UsageError, match=r"rests on times of own\.csv \(sha256 \w+\) - give that file"):
        pesto.check(plan, graph)
    with pytest.raises(VerificationError):
        pesto.check(plan, graph, costs=other)
    assert pesto.simulate(plan, graph, costs=file).makespan_s == plan.makespan_s
    assert 0.25 < pesto.simulate(plan, graph, costs=other).makespan_s < 0.35


def test_a_plan_of_scaled_times_needs_its_file_too(graph: Graph, tmp_path: Path) -> None:
    """Although it is labelled modelled; and a sweep scales one's own times as all others."""
    file = tmp_path / "own.csv"
    file.write_text("type,scale\nMatMul,100\n")
    plan = pesto.solve(graph, costs=file, time_limit_s=0, solver="list")
    pesto.check(plan, graph, costs=file)
    with pytest.raises(UsageError, match="give that file"):
        pesto.check(plan, graph)
    file.write_text("type,seconds\nMatMul,1\nAdd,1\n")
    slow, fast = pesto.sweep(graph, costs=file, compute=[1, 4], time_limit_s=0).rows
    assert slow.plan is not None and fast.plan is not None
    assert slow.plan.makespan_s / fast.plan.makespan_s == pytest.approx(4, rel=0.01)
