"""pesto sweep: clusters made faster, larger and smaller; the grid, the rows, and what a user sees."""

import json
import os
import re
import signal
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from pesto.choosing.whatif import points
from pesto.choosing.whatif.grid import ClusterPoint, SweepGrid, parse_values, scale_cluster
from pesto.choosing.whatif.points import SweepTask, sweep
from pesto.cli.main import pesto
from pesto.core.errors import InputError, SolverError, UsageError
from pesto.core.files.graph_file import save
from pesto.core.problem import build_problem
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.reporting.show import drawing
from pesto.reporting.show.sweep_page import draw_sweep, sweep_object, sweep_page

QUICK = Settings(time_limit_s=0, coarsen_to=8, solver="list")


def network(make_graph):
    """Four chains of layers that meet at the end; 1 ms an op, 1 MB between two."""
    ops = []
    for c in range(4):
        for k in range(2):
            inputs = [f"layer_{c}/{k - 1}"] if k else []
            ops.append({"name": f"layer_{c}/{k}", "inputs": inputs, "bytes": 10**6, "s": 1e-3, "param": 1000})
    return make_graph([*ops, {"name": "loss", "inputs": [f"layer_{c}/1" for c in range(4)], "s": 1e-3}])


def swept(graph, cluster, make_costs, hear=lambda _: None, *, cross=False, **values):
    gpus = len(cluster.devices) - 1
    grid = SweepGrid(base=ClusterPoint(devices=gpus), values=values, cross=cross)
    task = SweepTask(graph=graph, cluster=cluster, costs=lambda at: make_costs(graph, at), settings=QUICK, grid=grid)
    return sweep(task, hear)


def invoked(*arguments):
    return CliRunner().invoke(pesto, ["sweep", *map(str, arguments)])


@pytest.fixture
def step(tmp_path, make_graph):
    save(network(make_graph), tmp_path / "step.json")
    return tmp_path / "step.json"


def test_speeds_and_memory_scale_what_they_name(make_graph) -> None:
    """Compute 2: every device, speed x 2. Links 4: all of a path's seconds / 4. Memory 0.5: GPUs alone, half."""
    given = load_cluster("v100x2-pcie")
    found = scale_cluster(given, ClusterPoint(compute=2, links=4, devices=2, memory=0.5))
    assert [d.speed for d in found.devices] == [2.0] * 3
    assert [d.memory_bytes / e.memory_bytes for d, e in zip(found.devices, given.devices, strict=True)] == [1, 0.5, 0.5]
    for now, before in zip(sum(found.paths, ()), sum(given.paths, ()), strict=True):
        assert (now is None and before is None) or np.allclose(np.array(now.cost) * 4, before.cost)
    assert scale_cluster(given, ClusterPoint(devices=2)) == given


@pytest.mark.parametrize(("small", "large"), [("v100x2-nvlink", "v100x4"), ("v100x4", "v100x8"), ("cpux2", "cpux4")])
def test_a_preset_is_extended_as_the_larger_one_of_its_shape(small, large) -> None:
    """Extended, a preset has the devices of the larger one, and (but for v100x8's mixed links) its paths and links."""
    wide = load_cluster(large)
    count = len([d for d in wide.devices if d.kind == "gpu"]) or len(wide.devices)
    found = scale_cluster(load_cluster(small), ClusterPoint(devices=count))
    assert [d.name for d in found.devices] == [d.name for d in wide.devices]
    if large != "v100x8":
        for row, wanted in zip(found.paths, wide.paths, strict=True):
            for one, other in zip(row, wanted, strict=True):
                assert one is other is None or one.cost == other.cost
                assert one is None or [found.links[k] for k in one.links] == [wide.links[k] for k in other.links]


@pytest.mark.parametrize(("preset", "shared"), [("k80x8", "pcie root up"), ("v100x4x2-25gbe", "nic a out")])
def test_links_that_are_shared_stay_shared(preset, shared) -> None:
    """More dies on one PCIe root, more GPUs behind one network card: no new link of that name appears."""
    given = load_cluster(preset)
    found = scale_cluster(given, ClusterPoint(devices=12))
    assert [link for link in found.links if "root" in link or "nic" in link] == [
        link for link in given.links if "root" in link or "nic" in link
    ]
    last = [d.name for d in found.devices].index("gpu:11")
    held = {
        found.links[k] for path in (*found.paths[last], *(row[last] for row in found.paths)) if path for k in path.links
    }
    assert shared in held or shared.replace(" a ", " b ") in held


def test_two_hosts_get_the_new_devices_in_turn_and_lose_them_from_the_end() -> None:
    """4 + 4 GPUs become 5 + 5, each of the new two on another host; cut to four, one host is left, with its network."""
    given = load_cluster("v100x4x2-25gbe")
    more = scale_cluster(given, ClusterPoint(devices=10))
    assert [d.host for d in more.devices if d.kind == "gpu"] == [0] * 4 + [1] * 4 + [0, 1]
    few = scale_cluster(given, ClusterPoint(devices=4))
    assert [d.name for d in few.devices] == ["cpu:0", "gpu:0", "gpu:1", "gpu:2", "gpu:3"]
    assert not any("nic" in link for link in few.links)


def test_every_cut_and_extended_preset_makes_a_problem(make_graph, make_costs) -> None:
    """Whatever the size, the cluster is valid and every pair is joined."""
    graph = make_graph([{"name": "a", "bytes": 8}, {"name": "b", "inputs": ["a"]}])
    for preset, count in (("v100x8", 3), ("v100x16", 5), ("v100x16", 20), ("k80x8", 2), ("v100x2-pcie", 9)):
        cluster = scale_cluster(load_cluster(preset), ClusterPoint(devices=count))
        problem = build_problem(graph, make_costs(graph, cluster), cluster, memory=graph.param_bytes)
        assert problem.locations == count + 1


def test_a_cluster_without_one_pattern_is_refused() -> None:
    """v100x8's GPUs are joined in three ways, and one GPU shows no pair: more of them would be a guess."""
    with pytest.raises(InputError, match="not all joined alike - give a cluster file"):
        scale_cluster(load_cluster("v100x8"), ClusterPoint(devices=16))
    one = scale_cluster(load_cluster("v100x4"), ClusterPoint(devices=1))
    with pytest.raises(InputError, match="no two of its accelerators show"):
        scale_cluster(one, ClusterPoint(devices=2))


def test_points_are_each_once_and_the_base_comes_first() -> None:
    """One at a time the base is shared: 3 + 2 values, 4 points. Crossed: 3 x 2, less nothing."""
    values = {"compute": (0.5, 1.0, 2.0), "memory": (0.5, 1.0)}
    base = ClusterPoint(devices=2)
    alone = SweepGrid(base=base, values=values).points()
    assert alone[0] == base and len(alone) == len(set(alone)) == 4
    assert len(SweepGrid(base=base, values=values, cross=True).points()) == 6
    distances = [p.far(base) for p in SweepGrid(base=base, values=values, cross=True).points()]
    assert distances == sorted(distances) and distances[-1] == 2.0


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", ",", "x", "1,,2", "1e-9", "1e9"])
def test_values_that_are_none_are_refused(text) -> None:
    with pytest.raises(UsageError, match=r"^links: .* - give factors"):
        parse_values("links", text)


@pytest.mark.parametrize("text", ["0", "2.5", "257", "nan", "-2"])
def test_numbers_of_devices_are_whole(text) -> None:
    with pytest.raises(UsageError, match="give whole numbers from 1 to 256"):
        parse_values("devices", text)


def test_rows_follow_the_axis_and_start_from_a_neighbour(make_graph, make_costs) -> None:
    """A plan with more devices or faster links is never slower than the one it starts from; nine ops of 1 ms on one."""
    graph, cluster = network(make_graph), load_cluster("v100x2-nvlink")
    heard = []
    found = swept(graph, cluster, make_costs, heard.append, devices=(1.0, 2.0, 4.0), links=(0.01, 1.0, 100.0))
    assert [len(each.rows) for each in heard] == [1, 2, 3, 4, 5]
    assert found.rows[0].start is None and all(row.start is not None for row in found.rows[1:])
    by_devices = [row.plan.makespan_s for row in found.on("devices")]
    by_links = [row.plan.makespan_s for row in found.on("links")]
    assert by_devices == sorted(by_devices, reverse=True) and by_devices[0] == pytest.approx(9e-3)
    assert by_links == sorted(by_links, reverse=True)
    for row in found.rows:
        assert row.expert.fits and row.reduction == pytest.approx(1 - row.plan.makespan_s / row.expert.seconds)
        assert row.single.seconds == pytest.approx(9e-3)


def test_the_page_has_the_base_once_and_what_is_saved_of_the_better_of_two(
    make_graph, make_cluster, make_costs
) -> None:
    """Two axes of two values share the base: three rows. Of one device (9 ms) and Expert, the shorter that fits."""
    found = swept(network(make_graph), make_cluster(), make_costs, links=(0.01, 1.0), compute=(1.0, 2.0))
    rows = [line.split() for line in sweep_page(found).splitlines() if re.match(r" +[0-9.]+ +[0-9.]+ ", line)]
    assert [tuple(row[:2]) for row in rows] == [("1", "1"), ("0.01", "1"), ("1", "2")]
    for row in found.rows:
        assert row.saved == pytest.approx(1 - row.plan.makespan_s / min(row.expert.seconds, row.single.seconds))
    first = found.rows[0]
    slow = replace(first, expert=replace(first.expert, seconds=1.0))
    assert slow.saved == pytest.approx(1 - first.plan.makespan_s / 9e-3) and slow.saved < slow.reduction
    alone = replace(slow, single=replace(first.single, fits=False))
    assert alone.saved == alone.reduction
    assert replace(alone, expert=replace(first.expert, fits=False)).saved is None


def test_points_that_cannot_be_are_rows_that_say_so(make_graph, make_cluster, make_costs) -> None:
    """A variable of 4 kB is proven not to fit a tenth of 20 kB, and v100x8 has no pattern for a ninth GPU: each is a
    row, and the others are solved."""
    graph, cluster = network(make_graph), make_cluster(memory=20_000)
    ops = [{"name": "a", "s": 1e-3, "param": 4000}, {"name": "b", "s": 1e-3, "param": 4000}]
    found = swept(make_graph(ops), cluster, make_costs, memory=(0.1, 1.0), devices=(1.0, 2.0))
    by = {(row.point.memory, row.point.devices): row for row in found.rows}
    assert by[0.1, 2].status == "infeasible" and "do not fit" in by[0.1, 2].detail and by[0.1, 2].reduction is None
    assert by[1.0, 2].status == by[1.0, 1].status == "solved"
    uneven = load_cluster("v100x8")
    grid = SweepGrid(base=ClusterPoint(devices=8), values={"devices": (1.0, 9.0)})
    task = SweepTask(graph=graph, cluster=uneven, costs=lambda at: make_costs(graph, at), settings=QUICK, grid=grid)
    rows = {row.point.devices: row for row in sweep(task, lambda _: None).rows}
    assert rows[9].status == "refused" and rows[1].status == "solved"
    assert "devices 9: refused" in sweep_page(sweep(task, lambda _: None))


def test_the_command_prints_saves_and_draws(step, tmp_path) -> None:
    """JSON on stdout and in the file are one; the picture is a PNG; seconds are those of the plan."""
    out, picture = tmp_path / "sweep.json", tmp_path / "sweep.png"
    words = ["--graph", step, "--compute", "1,2", "--devices", "1,2", "--time-limit", "0"]
    done = invoked(*words, "--json", "-q", "-o", out, "--chart", picture)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert json.loads(out.read_bytes()) == found
    assert (
        found["axes"] == {"compute": [1.0, 2.0], "devices": [1.0, 2.0]} and len(found["rows"]) == found["points"] == 3
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    by = {(row["compute"], row["devices"]): row for row in found["rows"]}
    assert by[1, 1]["makespan_s"] == by[1, 1]["single_s"] and by[1, 1]["gap"] == 0
    assert by[2, 2]["makespan_s"] < by[1, 2]["makespan_s"]
    table = invoked("--graph", step, "--compute", "1", "--time-limit", "0", "-q")
    assert table.exit_code == 0 and "saved: of the shorter" in " ".join(table.stdout.split())


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "no axis is swept"),
        (("--compute", "0"), 2, "compute: '0' is no value"),
        (("--compute", "1", "--chart", "x.gif"), 2, "end the name in .png or .svg"),
        (("--compute", "1", "-o", "no/such/folder/x.json"), 8, "cannot write"),
        (("--speed", "1"), 2, "No such option"),
        (("--compute", "1", "--time-limit", "nan"), 2, "is no duration"),
        (("--cross", "--compute", ",".join(map(str, range(1, 60))), "--links", ",".join(map(str, range(1, 60)))), 2,
         "3481 points, at most 1000"),
        (("--memory", "0.000001", "--cluster", "v100x2-nvlink"), 4, "no point has a plan"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_one_line_and_a_code(words, code, text, tmp_path, make_graph) -> None:
    """Every refusal names what is wrong; the last is proven: 40 kB of variables in 16 kB of memory."""
    ops = [{"name": "a", "s": 1e-3, "param": 40_000}, {"name": "b", "inputs": ["a"], "s": 1e-3}]
    save(make_graph(ops), tmp_path / "step.json")
    done = CliRunner().invoke(
        pesto, ["sweep", "--graph", str(tmp_path / "step.json"), "-q", *words], standalone_mode=False
    )
    error = done.exception
    found = getattr(error, "exit_code", None)
    assert found == code and text in (error.format_message() if hasattr(error, "format_message") else str(error))


def test_a_chart_without_matplotlib_is_refused_before_the_work(step, monkeypatch) -> None:
    monkeypatch.setattr(drawing, "available", lambda: False)
    done = invoked("--graph", step, "--compute", "1", "--chart", "x.png")
    assert isinstance(done.exception, SolverError) and "needs matplotlib" in str(done.exception)


@pytest.mark.parametrize("compiled", [False, True])
def test_interrupts_keep_the_rows_that_are_done(step, tmp_path, monkeypatch, compiled) -> None:
    """Ctrl-C within the third point: two rows are printed, kept and drawn; exit code 130; handlers as before.

    compiled: as it comes out of compiled code, in which numba raises an error of its own for it.
    """
    real, calls = points.solve, []

    def third(*arguments):
        calls.append(1)
        try:
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as error:
            if compiled:
                raise SystemError("returned a result with an exception set") from error
            raise
        return real(*arguments)

    monkeypatch.setattr(points, "solve", third)
    handler = signal.getsignal(signal.SIGINT)
    out, picture = tmp_path / "sweep.json", tmp_path / "s.svg"
    words = ["--compute", "1,2,4,8", "--time-limit", "0", "-o", out, "--json", "-q", "--chart", picture]
    done = invoked("--graph", step, *words)
    found = json.loads(done.stdout)
    assert found["interrupted"] and len(found["rows"]) == 2 and json.loads(out.read_bytes()) == found
    assert done.exit_code == 130 and signal.getsignal(signal.SIGINT) is handler
    assert b"<svg" in picture.read_bytes()


@pytest.mark.slow
def test_a_crossed_chart_has_a_line_for_each_combination(make_graph, make_cluster, make_costs) -> None:
    """The same sweep gives the same bytes, and every combination of the other axis is named."""
    graph, cluster = network(make_graph), make_cluster(memory=4 * 10**6)
    found = swept(graph, cluster, make_costs, cross=True, compute=(1.0, 2.0), memory=(0.5, 1.0), links=(1.0,))
    assert draw_sweep(found, "png") == draw_sweep(found, "png")
    assert len(sweep_object(found)["rows"]) == 4
    assert all(len(found.on(axis)) == 4 for axis in ("compute", "memory", "links"))
