"""A plan's page in a browser: what hands, keys and searches do to it, and that it asks for and complains of nothing.

Skipped where no Chromium is installed: apt-get install chromium.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import browser
import networkx as nx
import numpy as np
import pytest

import pesto
from pesto.core.plans.execution_modes import order_worth
from pesto.core.settings import Settings
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs
from pesto.planning.solving.candidates import formulate
from pesto.reporting.show.html_report import ReportedPlan, html_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.installed() is None, reason="no chromium: apt-get install chromium"),
]
HOSTILE = (
    "<script>document.title='ran'</script>", "<img src=x onerror=document.title='ran'>", "a\u202egpj.exe", "nul\0nul",
    "two\nlines", "x" * 4097,
)  # fmt: skip
READY = "window.pestoReport && window.pestoReport.ready"
OPS = 160
BOX = "document.querySelector('canvas').getBoundingClientRect()"


def step() -> pesto.Graph:
    """Ops of three layers, of whole milliseconds, with hostile names among the last."""
    rng, dag = np.random.default_rng(7), nx.DiGraph()
    names = [f"layer_{i % 3}/cell_{i // 3}/MatMul" for i in range(OPS)]
    for i, name in enumerate(names):
        dag.add_node(name, seconds=float(rng.integers(1, 4)) * 1e-3, type="MatMul" if i % 2 else "AddN", runs_on="gpu")
        for j in rng.choice(i, size=min(i, 2), replace=False) if i else ():
            dag.add_edge(names[j], name, bytes=4_000_000)
    graph = pesto.graph_from_networkx(dag, source="<b>a step</b>")
    return replace(graph, names=(*graph.names[: -len(HOSTILE)], *HOSTILE))


def reported(label: str, graph: pesto.Graph, plan: pesto.Plan) -> ReportedPlan:
    machine = load_cluster("v100x2-nvlink")
    costs = load_costs(graph, machine, None)
    problem = formulate(graph, costs, machine, Settings())
    worth = order_worth(problem, plan.schedule.device, plan.rank)
    return ReportedPlan(label=label, plan=plan, cluster=machine, problem=problem, order=worth)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan against another one."""
    graph = step()
    plans = [pesto.solve(graph, solver="list", search=search, time_limit_s=1, seed=2) for search in (True, False)]
    shown = [reported(f"plan {k}<i>", graph, plan) for k, plan in enumerate(plans)]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(html_report(graph, shown))
    return path


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Tab]:
    with browser.browser() as found:
        yield found


@pytest.fixture
def opened(tab: browser.Tab, page: Path) -> Iterator[browser.Tab]:
    """The page, freshly loaded; whatever a test did to it, it asked for nothing else and complained of nothing."""
    tab.size(1280, 900)
    tab.open(page, READY)
    yield tab
    assert tab.value("document.title") == "<b>a step</b> on v100x2-nvlink"
    assert tab.requests == [page.resolve().as_uri()]
    assert tab.complaints == []


def view(tab: browser.Tab) -> dict[str, Any]:
    """The stretch of time that is seen, and the op that is chosen."""
    text = (
        "(({from, to, longest, chosen}) => JSON.stringify({from, to, longest, chosen}))(window.pestoReport.page.view)"
    )
    return dict(json.loads(tab.value(text)))


def middle(tab: browser.Tab, row: int = 0) -> tuple[float, float]:
    """The middle of a row of the first timeline, in the window."""
    tab.value("document.querySelector('canvas').scrollIntoView({block: 'center'})")
    there = "[b.left + (t.gutter + t.width) / 2, b.top + t.rows[ROW].y + t.rows[ROW].height / 2]".replace(
        "ROW", str(row)
    )
    box = tab.value(f"((t, b) => {there})(pestoReport.page.timelines[0], {BOX})")
    return box[0], box[1]


def drawn(tab: browser.Tab) -> None:
    """Wait for the next frame."""
    tab.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def test_the_wheel_zooms_where_it_points_and_dragging_moves(opened: browser.Tab) -> None:
    """The tick below the pointer stays; a drag to the left shows what comes later."""
    x, y = middle(opened)
    before = view(opened)
    opened.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600)
    opened.wait("window.pestoReport.page.view.span < 0.5 * window.pestoReport.page.view.longest")
    near = view(opened)
    assert (near["from"] + near["to"]) / 2 == pytest.approx((before["from"] + before["to"]) / 2, rel=0.01)
    opened.mouse("mousePressed", x, y, button="left", clickCount=1)
    opened.mouse("mouseMoved", x - 100, y, button="left")
    opened.mouse("mouseReleased", x - 100, y, button="left", clickCount=1)
    moved = view(opened)
    assert moved["from"] > near["from"] and moved["to"] - moved["from"] == pytest.approx(near["to"] - near["from"])
    assert moved["chosen"] == -1, "a drag is no click"


def test_two_fingers_zoom(opened: browser.Tab) -> None:
    """Apart, they come nearer."""
    x, y = middle(opened)
    for apart, kind in ((40, "touchStart"), (80, "touchMove"), (160, "touchMove")):
        points = [{"x": x - apart, "y": y, "id": 1}, {"x": x + apart, "y": y, "id": 2}]
        opened.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    opened.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    opened.wait("window.pestoReport.page.view.span < 0.6 * window.pestoReport.page.view.longest")


def test_a_search_finds_marks_and_lists(opened: browser.Tab) -> None:
    """All words of a search, in any order; Enter goes from one to the next; the table has what was found."""
    opened.value("document.getElementById('search').focus()")
    opened.call("Input.insertText", text="cell_1/ LAYER_2")
    opened.wait("document.getElementById('matches').textContent")
    assert opened.value("document.getElementById('matches').textContent") == "1 op found"
    assert opened.value("document.getElementById('ops').tBodies[0].rows.length") == 1
    opened.press("Enter")
    assert view(opened)["chosen"] == 5, "layer_2/cell_1 is the sixth op"
    assert opened.value("document.querySelector('#panel h3').textContent") == "layer_2/cell_1/MatMul"


def test_a_click_says_what_an_op_waited_for(opened: browser.Tab) -> None:
    """The panel has the op below the pointer, and a click on the cause goes there."""
    opened.click(*middle(opened))
    op = view(opened)["chosen"]
    panel = opened.value("document.getElementById('panel').textContent")
    assert op >= 0 and all(
        words in panel for words in ("Slack", "It waited for", "Why not elsewhere", "In the other plans")
    )
    assert opened.value(f"window.pestoReport.page.graph.names.of({op})") in panel
    cause = opened.value(f"window.pestoReport.page.steps[0].after[{op}]")
    assert cause >= 0
    opened.value("document.querySelector('#panel h4 ~ p button.name').click()")
    assert view(opened)["chosen"] == cause


def test_keys_do_all_that_the_pointer_does(opened: browser.Tab) -> None:
    """Zoom, move, choose, neighbours, causes, and nothing chosen."""
    opened.value("document.querySelector('canvas').focus()")
    whole = view(opened)
    opened.press("+")
    near = view(opened)
    assert near["to"] - near["from"] < whole["to"] - whole["from"]
    opened.press("ArrowRight")
    assert view(opened)["from"] > near["from"]
    opened.press("Enter")
    first = view(opened)["chosen"]
    assert first >= 0
    opened.press("n")
    assert opened.value(f"(s => s.place[{view(opened)['chosen']}] - s.place[{first}])(pestoReport.page.steps[0])") == 1
    opened.press("p")
    assert view(opened)["chosen"] == first
    opened.press("ArrowDown")
    assert opened.value(f"(s => s.lane[{view(opened)['chosen']}] != s.lane[{first}])(pestoReport.page.steps[0])")
    opened.press("w")
    opened.press("0")
    assert view(opened)["to"] - view(opened)["from"] == whole["longest"]
    opened.press("Escape")
    assert view(opened)["chosen"] == -1
    opened.press("/")
    assert opened.value("document.activeElement.id") == "search"


def test_the_table_sorts_and_turns_its_pages(opened: browser.Tab) -> None:
    """By duration at first, the longest first; by start and slack when asked; every op is on one of its pages."""
    column = "Array.from(document.getElementById('ops').tBodies[0].rows, (row) => row.cells[{}].textContent)"
    took = [float(text.split()[0]) for text in opened.value(column.format(1))]
    assert took == sorted(took, reverse=True) and len(took) == 50
    for cell in (2, 3):
        opened.value(f"document.querySelectorAll('#ops th button')[{cell}].click()")
        assert opened.value(f"document.querySelectorAll('#ops th')[{cell}].ariaSort") in ("ascending", "descending")
    opened.value("document.querySelectorAll('#ops th button')[2].click()")
    assert opened.value(column.format(2))[0] == "0.00 ms"
    names = set(opened.value(column.format(0)))
    while not opened.value("document.getElementById('after').disabled"):
        opened.value("document.getElementById('after').click()")
        names |= set(opened.value(column.format(0)))
    assert len(names) == OPS


def test_hostile_names_are_text(opened: browser.Tab) -> None:
    """Each is found and shown, with what cannot be seen written out; nothing in it runs, no element comes of it."""
    elements = opened.value("document.querySelectorAll('img, b, i:not([style]), main script').length")
    for k, name in enumerate(HOSTILE):
        opened.value(f"window.pestoReport.page.choose({OPS - len(HOSTILE) + k})")
        text = opened.value("document.querySelector('#panel h3').textContent")
        assert text.isprintable() and (text == name or "\\u" in text or "…" in text)
        drawn(opened)
    assert opened.value("document.querySelectorAll('img, b, i:not([style]), main script').length") == elements
    assert opened.value("document.getElementById('title').textContent") == "<b>a step</b>"


def test_another_plan_is_on_the_same_axis(opened: browser.Tab) -> None:
    """Two timelines that zoom together, a table of both, and colours that tell moved ops."""
    assert opened.value("document.querySelectorAll('canvas').length") == 2
    said = opened.value("document.getElementById('against-body').textContent")
    assert "plan 0<i>" in said and "plan 1<i>" in said
    options = opened.value("document.getElementById('colour').options.length")
    for way in range(options):
        opened.value(f"(s => {{ s.value = {way}; s.onchange({{target: s}}); }})(document.getElementById('colour'))")
        drawn(opened)
    assert options == 5
    opened.value("window.pestoReport.page.view.show(0, 1e6)")
    drawn(opened)
    assert opened.value("(t => t[0].tick(t[0].width) === t[1].tick(t[1].width))(window.pestoReport.page.timelines)")


def test_dark_and_narrow(opened: browser.Tab) -> None:
    """The canvas follows the colours that the user likes, and nothing is wider than a phone."""
    paper = "Array.from(document.querySelector('canvas').getContext('2d').getImageData(2, 2, 1, 1).data)"
    light = opened.value("window.pestoReport.page.timelines[0].theme.paper")
    opened.size(390, 844, dark=True, phone=True)
    drawn(opened)
    drawn(opened)
    assert light == "#ffffff" and sum(opened.value(paper)[:3]) < 150
    assert opened.value("document.documentElement.scrollWidth") == 390
    assert opened.value("document.querySelector('canvas').clientWidth") > 300


def test_what_others_miss_under_an_op(opened: browser.Tab) -> None:
    """The idle time of the other GPU while an op runs, tick by tick of a millisecond from the page's own boxes."""
    found = json.loads(
        opened.value(
            "(({lane, start, finish}, s) => JSON.stringify([[lane, start, finish].map((c) => Array.from(c)), "
            "Array.from(lane, (_, op) => s.idleUnder(op))]))(pestoReport.page.steps[0], pestoReport.page.steps[0])"
        )
    )
    (lane, start, finish), idle = (np.array(each) for each in found)
    for op in range(OPS):
        busy = np.minimum(finish, finish[op]) - np.maximum(start, start[op])
        assert idle[op] == finish[op] - start[op] - np.maximum(busy, 0)[lane != lane[op]].sum()
    assert (idle > 0).any() and (idle == 0).any()


def test_the_panel_says_why_an_op_is_not_elsewhere(tab: browser.Tab, tmp_path: Path) -> None:
    """A kind without a kernel, one for which another op of the group has none, and devices where it may be."""
    dag = nx.DiGraph()
    for name, kinds in (("host", "cpu"), ("bound", "cpu,gpu"), ("only", "gpu"), ("either", "cpu,gpu")):
        dag.add_node(name, seconds=1e-3, runs_on=kinds)
    nx.add_path(dag, list(dag), bytes=8)
    for name in ("host", "bound"):
        dag.nodes[name]["group"] = 1
    graph = pesto.graph_from_networkx(dag)
    path = tmp_path / "page.html"
    path.write_bytes(html_report(graph, [reported("plan", graph, pesto.solve(graph, time_limit_s=0, search=False))]))
    tab.open(path, READY)
    said = {}
    for op, name in enumerate(dag):
        tab.value(f"window.pestoReport.page.choose({op})")
        said[name] = tab.value("document.getElementById('panel').textContent").partition("Why not elsewhere")[2]
    assert "gpu: it has no kernel for such a device" in said["host"]
    assert "gpu: an op of its group has no kernel" in said["bound"] and "1 op of its group:host" in said["bound"]
    assert "cpu: it has no kernel" in said["only"] and "it may be; the search found nothing shorter" in said["only"]
    assert "cpu: what can run on an accelerator, with its whole group, does" in said["either"]
    assert tab.complaints == []


@pytest.mark.parametrize(("ops", "seconds"), [(1, 1e-3), (9, 0.0), (9, 9e5)])
def test_steps_of_no_time_of_one_op_and_of_months(tab: browser.Tab, tmp_path: Path, ops: int, seconds: float) -> None:
    """They are drawn in every colour and at every zoom, and no number of the page is none."""
    dag = nx.DiGraph()
    nx.add_path(dag, [f"op_{i}" for i in range(ops)], bytes=8)
    nx.set_node_attributes(dag, seconds, "seconds")
    graph = pesto.graph_from_networkx(dag)
    path = tmp_path / "page.html"
    path.write_bytes(html_report(graph, [reported("plan", graph, pesto.solve(graph, time_limit_s=0, search=False))]))
    tab.open(path, READY)
    for way in range(4):
        tab.value(f"window.pestoReport.page.colour({way})")
        tab.value("window.pestoReport.page.view.zoom(0.1)")
        drawn(tab)
    tab.value("window.pestoReport.page.choose(0)")
    text = tab.value("document.querySelector('main').innerText")
    assert tab.complaints == [] and not any(word in text for word in ("NaN", "undefined", "Infinity"))


def test_a_damaged_page_says_so(tab: browser.Tab, page: Path, tmp_path: Path) -> None:
    """In place of a timeline stands a line that says what to do."""
    text = page.read_text()
    at = text.index('class="packed">') + len('class="packed">')
    (tmp_path / "cut.html").write_text(text[:at] + text[at + 400 :])
    tab.open(tmp_path / "cut.html", "document.querySelector('#trouble:not([hidden])')")
    assert "could not be drawn" in tab.value("document.getElementById('trouble').textContent")
