"""What a plan shows of itself in Python: its picture, its explanation, its table of ops."""

import importlib.util
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import pesto
from pesto.core.plans.notebook import MOST_LANES
from pesto.reporting.explaining.explanation import ExplainContext

OPS = [
    {"name": "net/a", "bytes": 1000, "s": 1e-3},
    {"name": "net/b", "inputs": ["net/a"], "s": 2e-3},
    {"name": "net/c", "inputs": ["net/a"], "s": 3e-3},
]


@pytest.fixture
def case(made):
    return made(OPS, places={"net/c": "gpu:1"})


def test_a_plan_that_does_not_know_its_graph_says_what_to_call(case) -> None:
    """One that was made without the face, and one loaded whose graph is of a file."""
    for plan in (case.plan, replace(case.plan, reader=ExplainContext())):
        with pytest.raises(pesto.UsageError, match=r"call pesto\.explain\(plan, graph\)"):
            plan.explain()


def test_the_picture_of_a_plan_has_every_processor_that_computes(case) -> None:
    """Well-formed markup, a row a processor, and columns of time whose sum is what each computes."""
    found = case.plan.timeline()
    assert found.lanes == ("gpu:0", "gpu:1")
    assert found.busy_s.tolist() == [pytest.approx(3e-3), pytest.approx(3e-3)]
    wide = found.step_s / found.busy.shape[1]
    assert (found.busy.sum(axis=1) * wide).tolist() == [pytest.approx(3e-3), pytest.approx(3e-3)]
    assert float(found.busy.max()) <= 1.0 + 1e-9
    drawn = ElementTree.fromstring(found._repr_html_())  # noqa: S314
    titles = [each.text for each in drawn.iter() if each.tag.endswith("title")]
    assert any(title.startswith("net/c: ") for title in titles if title)
    assert "2 processors" in repr(found)


def test_a_picture_of_many_processors_has_those_that_compute_most(made) -> None:
    """A host of 40 cores, each with an op: no more rows than a page takes."""
    ops = [{"name": f"o{k}", "kinds": ("cpu",), "s": 1e-3 * (k + 1)} for k in range(40)]
    found = made(ops, places={op["name"]: "cpu:0" for op in ops}, cores=40).plan.timeline()
    assert len(found.lanes) <= MOST_LANES
    assert float(found.busy_s.min()) > 0


def test_a_step_of_no_time_has_a_picture(made) -> None:
    """Nothing computes, and nothing is divided by it."""
    found = made([{"name": "a", "s": 0.0}]).plan.timeline()
    assert found.lanes == ()
    assert found._repr_html_()


def test_a_frame_has_a_row_an_op(case) -> None:
    """By pandas where it is installed: names, places and times, and nothing of a graph that is not known."""
    pytest.importorskip("pandas")
    frame = case.plan.to_frame()
    assert list(frame.columns) == ["name", "scope", "device", "lane", "rank", "start_s", "finish_s"]
    assert frame["device"].tolist() == ["gpu:0", "gpu:0", "gpu:1"]
    assert frame["scope"].tolist() == ["net"] * 3
    assert np.allclose(frame["finish_s"] - frame["start_s"], [1e-3, 2e-3, 3e-3])


def test_without_pandas_and_polars_a_frame_names_both(case, monkeypatch) -> None:
    """A clear error in place of a traceback from an import."""
    monkeypatch.setattr("pesto.core.plans.notebook.find_spec", lambda _: None)
    with pytest.raises(pesto.UsageError, match="needs pandas or polars - pip install"):
        case.plan.to_frame()


def test_with_polars_alone_it_is_a_frame_of_polars(case, monkeypatch) -> None:
    """The second library is asked when the first is missing."""
    asked = []

    class Library:
        @staticmethod
        def DataFrame(columns):  # noqa: N802
            return columns

    monkeypatch.setattr("pesto.core.plans.notebook.find_spec", lambda name: name == "polars" or None)
    monkeypatch.setattr("pesto.core.plans.notebook.importlib.import_module", lambda name: asked.append(name) or Library)
    assert case.plan.to_frame()["name"] == ["net/a", "net/b", "net/c"]
    assert asked == ["polars"]


def test_a_solved_plan_explains_itself_and_its_frame_has_slack(tmp_path) -> None:
    """From `pesto.solve` to the explanation without another argument; saved and loaded, by its graph alone."""
    import networkx as nx

    drawn = nx.DiGraph([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    nx.set_edge_attributes(drawn, 1000, "bytes")
    nx.set_node_attributes(drawn, 1e-3, "seconds")
    graph = pesto.graph_from_networkx(drawn)
    plan = pesto.solve(graph, time_limit_s=0, search=False)
    found = plan.explain("b")
    assert found.op is not None
    assert sum(found.path.ticks.values()) == found.step_ticks == plan.schedule.makespan
    assert "<table>" in found._repr_html_()
    if importlib.util.find_spec("pandas"):
        frame = plan.to_frame()
        assert {"type", "slack_s", "waited_for"} <= set(frame.columns)
        assert float(frame["slack_s"].min()) == 0
    pesto.save_plan(plan, tmp_path / "plan.json")
    again = pesto.load_plan(tmp_path / "plan.json")
    assert pesto.explain(again, graph).step_ticks == found.step_ticks
    assert pesto.explain(tmp_path / "plan.json", graph, op="a").op.op == "a"
    with pytest.raises(pesto.UsageError, match=r"pesto\.explain"):
        again.explain()
