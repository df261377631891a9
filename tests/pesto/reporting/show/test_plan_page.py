"""A plan's page holds what the plan says, to the tick and the byte, and names in it are data alone."""

import base64
import hashlib
import json
import re
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import pesto
from pesto.cli.main import pesto as command
from pesto.core.files import graph_file
from pesto.core.memory import footprint
from pesto.core.plans.execution_modes import order_worth
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.candidates import formulate
from pesto.reporting.explaining.waits import TRANSFER, explain_waits
from pesto.reporting.show.html_report import SCRIPTS, ReportedPlan, build_name_tree, html_report, since_alike, varints
from solvers.memory.usage import over_time

ROOT = Path(__file__).resolve().parents[4]
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><!--",
    "a\u202egpj.exe",
    "nul\0nul",
    "two\nlines",
    "x" * 4097,
    "&amp;'\"",
)
CLUSTER = "v100x2-nvlink"
Columns = dict[str, list[int]]


def step(ops: int = 60) -> pesto.Graph:
    """A random graph of three scopes with numbers in its names, types, tensors that are sent, and a group."""
    rng, dag = np.random.default_rng(3), nx.DiGraph()
    names = [f"layer_{i % 3}/cell_{i // 6}/MatMul_{i}" for i in range(ops)]
    for i, name in enumerate(names):
        dag.add_node(name, seconds=float(rng.integers(0, 4)) * 1e-3, type=f"T{i % 4}", runs_on="gpu")
        for j in rng.choice(i, size=min(i, 2), replace=False) if i else ():
            dag.add_edge(names[j], name, bytes=int(rng.integers(1, 9)) * 1_000_000)
    for name in names[:2]:
        dag.nodes[name].update(group=1, param_bytes=1000)
    return pesto.graph_from_networkx(dag, source="a random step")


def reported(graph: pesto.Graph, plan: pesto.Plan, label: str = "plan.json") -> ReportedPlan:
    """What the verb shows of a plan."""
    machine = load_cluster(CLUSTER)
    costs = load_costs(graph, machine, None)
    problem = formulate(graph, costs, machine, Settings())
    worth = order_worth(problem, plan.schedule.device, plan.rank)
    return ReportedPlan(label=label, plan=plan, cluster=machine, problem=problem, order=worth)


def renamed(shown: ReportedPlan, graph: pesto.Graph, names: tuple[str, ...]) -> tuple[pesto.Graph, ReportedPlan]:
    """The same with other names of the first ops."""
    new = (*names, *graph.names[len(names) :])
    return replace(graph, names=new), replace(shown, plan=replace(shown.plan, names=new))


@pytest.fixture(scope="module")
def graph() -> pesto.Graph:
    return step()


@pytest.fixture(scope="module")
def shown(graph: pesto.Graph) -> ReportedPlan:
    return reported(graph, pesto.solve(graph, cluster=CLUSTER, time_limit_s=0))


def read(data: bytes) -> list[int]:
    """Integers from bytes, as `unpack.js` reads them."""
    found, at = [], 0
    while at < len(data):
        byte, size, unit = data[at], (data[at] & 127) >> 1, 64
        below, at = byte & 1, at + 1
        while byte > 127:
            byte, at = data[at], at + 1
            size, unit = size + (byte & 127) * unit, unit * 128
        found.append(-size if below else size)
    return found


def opened(page: bytes) -> tuple[dict[str, Any], list[Columns]]:
    """What a page says, and its columns."""
    text = page.decode()
    said = re.search(r'<script type="application/json" id="facts">(.*?)</script>', text, re.DOTALL)
    assert said is not None
    facts = json.loads(said[1])
    packed = re.findall(r'<script type="text/plain" class="packed">(.*?)</script>', text, re.DOTALL)
    found = []
    for part, base in zip([facts["graph"], *facts["plans"]], packed, strict=True):
        values = iter(read(zlib.decompress(base64.b64decode(base), -15)))
        found.append({name: [next(values) for _ in range(count)] for name, count in part["columns"].items()})
        assert list(values) == []
    return facts, found


def unlike(column: list[int], alike: list[int]) -> list[int]:
    """Entries again from what each is more than the last of its class."""
    last: dict[int, int] = {}
    for k, (step_, kind) in enumerate(zip(column, alike, strict=True)):
        column[k] = last[kind] = last.get(kind, 0) + step_
    return column


@given(st.lists(st.integers(-(2**62), 2**62)))
def test_integers_are_read_as_they_were_written(values: list[int]) -> None:
    """Of any size and sign, small ones in one byte."""
    data = varints(np.array(values, dtype=np.int64))
    assert read(data) == values
    assert len(data) >= len(values) and len(varints(np.array([0, 63, -63]))) == 3


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3))))
def test_differences_within_a_class_are_undone(rows: list[tuple[int, int]]) -> None:
    """Whatever order the classes come in."""
    values, alike = ([row[k] for row in rows] for k in range(2))
    packed = since_alike(np.array(values, dtype=np.int64), np.array(alike, dtype=np.int64))
    assert unlike(packed.tolist(), alike) == values


PART = st.text(alphabet="ab/_0123\0<\u202e²", max_size=12)


@given(st.lists(PART, unique=True))
def test_names_are_put_together_again(names: list[str]) -> None:
    """With slashes at either end, numbers with zeros before them, digits that are no numbers, and no name at all."""
    tree, numbers, last, whole = (
        build_name_tree(tuple(names)),
        iter(build_name_tree(tuple(names)).steps.tolist()),
        {},
        [],
    )
    for parent, pattern in zip(tree.parent.tolist(), tree.pattern.tolist(), strict=True):
        pieces = tree.patterns[pattern]
        before = last.get(pattern, [0] * (len(pieces) - 1))
        last[pattern] = [old + next(numbers) for old in before]
        part = pieces[0] + "".join(f"{n}{piece}" for n, piece in zip(last[pattern], pieces[1:], strict=True))
        whole.append(part if parent < 0 else f"{whole[parent]}/{part}")
    assert whole[len(tree.scopes) :] == names


def test_columns_are_the_plan(graph: pesto.Graph, shown: ReportedPlan) -> None:
    """Start, finish, processor, transfers, slack and bytes alive of every op and device, and the graph's edges."""
    (shared, own), s = opened(html_report(graph, [shown]))[1], shown.plan.schedule
    alike = shared["pattern"][-graph.ops :]
    took, order = unlike(own["took"], alike), list(accumulate(own["order"]))
    start, place = {}, iter(zip(order, own["gap"], strict=True))
    for lane, count in enumerate(own["on"]):
        now = 0
        for op, gap in [next(place) for _ in range(count)]:
            assert s.device[op] == lane
            start[op] = now + gap
            now = start[op] + took[op]
    assert [start[op] for op in range(graph.ops)] == s.start.tolist()
    assert took == (s.finish - s.start).tolist()
    assert list(accumulate(own["sent_start"])) == s.sent_start.tolist()
    assert list(accumulate(own["sent_op"])) == shown.problem.producer[s.sent_payload].tolist()
    assert len(own["sent_bytes"]) > 3 and all(size % 1_000_000 == 0 and size for size in own["sent_bytes"])
    levels(graph, shown, own)
    edges(graph, shared, alike)


def levels(graph: pesto.Graph, shown: ReportedPlan, own: Columns) -> None:
    """Bytes alive are those of the memory model, whose peaks the plan states."""
    at, level = iter(own["level_at"]), iter(own["level"])
    curves = over_time(shown.problem, footprint(graph), shown.plan.schedule)
    for count, (ticks, amount), peak in zip(own["levels"], curves, shown.plan.peak_bytes.values(), strict=True):
        assert list(accumulate(next(at) for _ in range(count))) == ticks.tolist()
        found = list(accumulate(next(level) for _ in range(count)))
        assert found == amount.tolist() and max(found) == peak


def edges(graph: pesto.Graph, shared: Columns, alike: list[int]) -> None:
    """The inputs of each op are its edges in the graph."""
    inputs = unlike(shared["inputs"], alike)
    heads = [op for op, count in enumerate(inputs) for _ in range(count)]
    slots = [slot for count in inputs for slot in range(count)]
    offset = unlike(shared["from"], [alike[op] * 64 + min(slot, 63) for op, slot in zip(heads, slots, strict=True)])
    found = sorted((op - back, op) for op, back in zip(heads, offset, strict=True))
    assert found == sorted(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True))


def test_waits_are_those_of_the_analysis(graph: pesto.Graph, shown: ReportedPlan) -> None:
    """What each op waited for and its slack, and the kinds of the critical path sum to the step."""
    facts, (_, own) = opened(html_report(graph, [shown]))
    found, plan = explain_waits(shown.timeline, shown.plan.rank), facts["plans"][0]
    order = list(accumulate(own["order"]))
    place = {op: k for k, op in enumerate(order)}
    after = {1: lambda op, why: op - why, 3: lambda op, why: order[place[op] - 1 - why]}
    for op, (cause, why) in enumerate(zip(own["cause"], own["reason"], strict=True)):
        assert cause == found.cause[op]
        assert (
            why == found.transfer[op] if cause == TRANSFER else (not cause or after[cause](op, why) == found.after[op])
        )
    slack = dict(zip(order, accumulate(own["slack"]), strict=True))
    assert [slack[op] for op in range(graph.ops)] == found.slack.tolist()
    assert sum(plan["path"].values()) == plan["step"] == shown.plan.schedule.makespan
    assert set(own["cause"]) == {0, 1, 2, 3}, "the step has every cause"


def test_names_are_data_and_only_the_page_s_own_script_may_run(graph: pesto.Graph, shown: ReportedPlan) -> None:
    """Hostile names come back as they are, and nothing in the page begins an element that the template does not."""
    nasty, its = renamed(shown, replace(graph, source=HOSTILE[0]), HOSTILE)
    page = html_report(nasty, [its])
    text, plain = page.decode(), html_report(graph, [shown]).decode()
    assert text.count("<") - plain.count("<") == 0 and HOSTILE[0] not in text and "\0" not in text
    facts, (shared, _) = opened(page)
    assert facts["graph"]["source"] == HOSTILE[0] and len(shared["parent"]) == facts["graph"]["scopes"] + graph.ops
    pieces = {piece for pattern in facts["graph"]["patterns"] for piece in pattern}
    assert {"nul\0nul", "two\nlines", "a\u202egpj.exe", "x" * 4097} <= pieces
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    assert rules["default-src"] == "'none'" and rules["base-uri"] == rules["form-action"] == "'none'"
    for rule, element in (("script-src", "script"), ("style-src", "style")):
        (own,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}'"
    assert not re.search(r"https?:|\bon\w+=|src=|href=|style=|innerHTML|insertAdjacentHTML|\beval\b", text)


def test_every_asset_is_installed_and_in_the_page() -> None:
    """The scripts of the folder are those of the page, each short enough to be read; the build is told to take them."""
    folder = files("pesto.reporting.show") / "assets"
    found = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir()}
    assert set(found) == {*SCRIPTS, "report.html", "report.css"}
    assert max(len(text.splitlines()) for text in found.values()) <= 400
    build: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "reporting/show/assets/*" in build["package-data"]["pesto"]


def run(*words: object) -> Result:
    """The command line in this process."""
    return CliRunner().invoke(command, [str(word) for word in words])


def test_a_page_from_the_command_line(graph: pesto.Graph, shown: ReportedPlan, tmp_path: Path) -> None:
    """Of one plan, and of two; what is refused is refused as by check, and an older page stays as it was."""
    (tmp_path / "g.json").write_bytes(graph_file.dumps(graph))
    plan, out = tmp_path / "plan.json", tmp_path / "page.html"
    pesto.save_plan(shown.plan, plan)
    other = pesto.solve(graph, cluster=CLUSTER, solver="list", search=False, time_limit_s=0)
    pesto.save_plan(other, tmp_path / "other.json")
    given = ("report", plan, "--graph", tmp_path / "g.json", "-o", out)
    assert run(*given, "--against", tmp_path / "other.json").exit_code == 0
    facts, columns = opened(out.read_bytes())
    assert [each["label"] for each in facts["plans"]] == ["plan.json", "other.json"] and len(columns) == 3
    written = out.read_bytes()
    pesto.save_plan(pesto.solve(step(20), cluster=CLUSTER, time_limit_s=0), tmp_path / "foreign.json")
    (tmp_path / "cut.json").write_bytes(plan.read_bytes()[:999])
    newer = {**json.loads(plan.read_bytes()), "format_version": 2}
    (tmp_path / "newer.json").write_text(json.dumps(newer))
    for name, code in (("foreign", 9), ("cut", 3), ("newer", 3)):
        failed = run(*given, "--against", tmp_path / f"{name}.json")
        assert getattr(failed.exception, "exit_code", None) == code and "\n" not in str(failed.exception)
    assert out.read_bytes() == written and not list(tmp_path.glob(".pesto-*"))
    assert getattr(run("report", plan, "-o", plan, "--graph", tmp_path / "g.json").exception, "exit_code", None) == 2


@pytest.mark.slow
def test_a_solve_writes_the_page_at_once(graph: pesto.Graph, tmp_path: Path) -> None:
    """Its page says beside the plan what it took, and its last line what to do next."""
    (tmp_path / "g.json").write_bytes(graph_file.dumps(graph))
    words = ("solve", "--graph", tmp_path / "g.json", "--time-limit", "0", "-q", "-o", tmp_path / "plan.json")
    done = run(*words, "--report", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert re.search(r"\npage +\S*page.html; +open it in a browser$", " ".join(done.output.split("\n ")).rstrip())
    told = json.loads(run(*words, "--report", tmp_path / "page.html", "--json").stdout)
    assert told["report"] == str(tmp_path / "page.html") and json.loads(run(*words, "--json").stdout)["report"] is None
    facts, columns = opened((tmp_path / "page.html").read_bytes())
    assert {"graph", "costs", "verify"} <= {name for name, _ in facts["plans"][0]["stages_s"]}
    assert facts["plans"][0]["cpu_s"] > 0
    assert (
        run("report", tmp_path / "plan.json", "--graph", tmp_path / "g.json", "-o", tmp_path / "b.html").exit_code == 0
    )
    again, same = opened((tmp_path / "b.html").read_bytes())
    assert same == columns and again["plans"][0]["cpu_s"] is None and again["plans"][0]["stages_s"] == []
    assert re.search(r"\nnext +pesto report \S*plan.json", run(*words).output.replace("\\\n", ""))
