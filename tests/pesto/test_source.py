"""Sources of graphs carry their origin as fields; lines of older files are read back to the same fields."""

import json
from pathlib import Path

import pytest

from pesto.core.errors import InputError
from pesto.core.files import graph_file
from pesto.core.plans.plan_file import dumps, loads
from pesto.core.source import (
    Cut,
    GraphOrigin,
    file_source,
    function_source,
    model_source,
    origin_of,
    read_source,
    saved_model_source,
)
from pesto.split.files.split_file import dumps_split_file, loads_split
from pesto.split.files.typed_graph_file import dumps_typed_graph, loads_typed_graph

CUTS = [Cut(8), Cut(8, ()), Cut(3, (2, 2, 2, 1, 0, 0)), Cut(12, (11,)), Cut(12, (1, 1), 4), Cut(8, (), 2)]
FIRST = Path(__file__).parents[1] / "data" / "format-1"
PLAN = FIRST / "plan.json"


@pytest.mark.parametrize("batch", [None, 64])
@pytest.mark.parametrize("cut", CUTS)
def test_cut_functions(cut: Cut, batch: int | None) -> None:
    """Function, batch, pieces, and how late each variable is, as fields and read back from the line."""
    source = function_source("m:f", batch, cut)
    for found in (source.origin.cut_function, read_source(str(source)).origin.cut_function):
        assert found is not None and (found.function, found.batch, found.cut) == ("m:f", batch, cut)


@pytest.mark.parametrize(
    "source",
    [
        model_source("nmt", "small", 64), model_source("nmt", "small", None), file_source("a b.pb"),
        saved_model_source("a folder", "serving_default"), function_source("m:f", None, None),
    ],
)  # fmt: skip
def test_lines_are_read_back(source) -> None:
    assert read_source(str(source)).origin == source.origin != GraphOrigin(kind="other")
    assert origin_of(str(source)).kind == "other" and origin_of(source) == source.origin


def test_others_name_no_cut() -> None:
    """A function as it is, and more variables than there can be, which a file may claim."""
    line = str(function_source("m:f", 64, Cut(8, (1,))))
    assert line.endswith(" 1x1")
    assert all(read_source(line.replace("each", f"every {turn}")).origin.cut_function is None for turn in (0, 3))
    for other in ("function m:f", line.replace("1x1", "1x999999999")):
        assert read_source(other).origin.cut_function is None


def test_numbers_that_python_refuses_to_read_name_no_source():
    """More than 4 300 digits, in each place of a line."""
    many = "9" * 5000
    for line in (f"model nmt small batch {many}", f"model nmt small, {many} micro-batches"):
        assert read_source(line).origin.model is None
    late = "batches, an update after"
    for line in (
        f"batch {many}, 4 micro-batches", f", {many} micro-batches", f", 4 {late} every {many}, weights late by 0",
        f", 4 {late} each, weights late by {many}x1", f", 4 {late} each, weights late by 1x{many}",
    ):  # fmt: skip
        assert read_source(f"function m:f {line}".replace(" ,", ",")).origin.cut_function is None


def older(**words) -> bytes:
    """The plan of the first version with other lines of where it comes from."""
    document = json.loads(PLAN.read_text())
    document["provenance"] |= words
    return json.dumps(document).encode()


def test_a_plan_of_an_older_version_gets_the_fields_from_its_lines() -> None:
    """Each kind of graph, cluster and costs; a plan that has the fields is taken by them alone."""
    for source in (model_source("nmt", "small", 64), function_source("m:f", 64, Cut(8, (1,))), file_source("a.pb")):
        assert loads(older(graph_source=str(source)), "x").provenance.graph_origin == source.origin
    for line, kind, name in (("preset dgx", "preset", "dgx"), ("my.toml", "file", "my.toml")):
        origin = loads(older(cluster_source=line), "x").provenance.cluster_origin
        assert (origin.kind, origin.name, origin.digest) == (kind, name, "")
    own = "own times of 3 of 4 ops (1 of them scaled) by my own.csv (sha256 1f0c53a9), else "
    profile = "4 of 4 ops by model nmt small (gpu, V100, 9 iterations), else roofline of V100"
    for costs, basis, kinds in (
        ("roofline of V100", "modelled", []),
        (own + "roofline of V100", "given", [("times", "my own.csv", "1f0c53a9")]),
        (profile, "measured", [("profile", "model nmt small", "")]),
        (own + profile, "mixed: 1 of 4 ops measured, 3 given",
         [("times", "my own.csv", "1f0c53a9"), ("profile", "model nmt small", "")]),
    ):  # fmt: skip
        files = loads(older(costs=costs, costs_basis=basis), "x").provenance.costs_files
        assert [(file.kind, file.name, file.digest) for file in files] == kinds
    now = json.loads(dumps(loads(older(graph_source="model nmt small"), "x")))
    now["provenance"]["graph_source"] = "model rnnlm tiny"
    assert loads(json.dumps(now).encode(), "x").provenance.graph_origin.name == "nmt"


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"micro_batches": 3, "every": 2}, {"late": [-1]}, {"late": [0] * 65537}]
)
def test_fields_that_no_graph_is_made_with_are_refused(wrong) -> None:
    with pytest.raises(InputError, match=r"provenance.graph_origin"):
        loads(older(graph_origin={"kind": "function", "name": "m:f"} | wrong), "x")


FORMS = {
    "graph.json": (graph_file.loads, graph_file.dumps),
    "step.shaped.json": (loads_typed_graph, dumps_typed_graph),
    "split.json": (loads_split, dumps_split_file),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_graph_or_split_of_an_older_version_gets_the_fields_from_its_line(name: str) -> None:
    """Each kind of graph; a file that has the fields is taken by them alone, and saving keeps them."""
    read, write = FORMS[name]
    first = json.loads((FIRST / name).read_text())
    assert "graph_origin" not in first
    for source in (model_source("nmt", "small", 64), function_source("m:f", 64, Cut(8, (1,))), file_source("a.pb")):
        old = read(json.dumps(first | {"source": str(source)}).encode(), "x")
        assert (old.source, old.origin) == (str(source), source.origin)
        saved = json.loads(write(old))
        assert read(json.dumps(saved | {"source": "model rnnlm tiny"}).encode(), "x").origin == source.origin
    with pytest.raises(InputError, match="graph_origin"):
        read(json.dumps(first | {"graph_origin": {"kind": "model", "batch": 0}}).encode(), "x")
    with pytest.raises(InputError, match="graph_origin"):
        read(json.dumps(first | {"graph_origin": {"kind": "model", "name": "a\n"}}).encode(), "x")
