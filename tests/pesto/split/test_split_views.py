"""Views of a split: what they say of ops and variables is what the division has, and exports run as they are."""

import ast
import json
import math
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pesto.cli.main import pesto
from pesto.core.errors import UsageError
from pesto.core.source import Source
from pesto.reporting.show.split_page import draw_split, split_page
from pesto.split.division import MATTERS, refuse_undescribed, undescribed_shares
from pesto.split.files.split_check import SplitBounds
from pesto.split.files.split_file import dumps_split, loads_split
from pesto.split.files.typed_graph_file import save_typed_graph
from pesto.split.geometry import PARTIAL, WHOLE
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.split.split_views import (
    _axes,
    _joined,
    division_tables,
    explain_op,
    find_op,
    jax_text,
    layout_words,
    variable_rows,
)
from pesto.tf import named_sources
from pesto.verbs.artifacts import CheckedSplit
from solvers.result import Status

OP = "layer_0/step_0/MatMul"


@pytest.fixture(scope="module")
def shaped():
    return named_sources.load_typed(Source(model="rnnlm", variant="tiny"))[1]


@pytest.fixture(scope="module")
def found(shaped):
    return divide(shaped, (2, 2), "greedy", Rules(), seconds=60)


def run(*words: object) -> Result:
    """The command line, in this process."""
    tiny = ("split", "--model", "rnnlm", "--variant", "tiny", "--workers", "2x2", "--method", "greedy")
    return CliRunner().invoke(pesto, [*tiny, *map(str, words)])


def test_parts_of_kept_outputs_cover_the_tensor(shaped, found):
    """The parts of all workers have together what the tensor has, or each all of it."""
    op = explain_op(shaped, found.division, OP)
    (made,) = op.outputs
    elements = {box: math.prod(box[1]) for box in made.parts}
    assert sum(elements.values()) == math.prod(made.shape)
    assert len(made.parts) == found.division.workers


def test_a_first_cut_without_a_proof_is_named(shaped, found):
    """A proof of the last cut says nothing of the first, on the page and where the file is checked."""
    first, last = found.cuts
    proven = replace(last, status=Status.OPTIMAL, bound=last.value)
    split = replace(found, cuts=(replace(first, status=Status.FEASIBLE, bound=32), proven))
    page = " ".join(split_page(shaped, split, []).split())
    assert "cut 1 of 2 sends 32 B at least" in page and "gap 0%" not in page
    file = loads_split(dumps_split(shaped, split, time_limit_s=1.0), "split")
    again = SplitBounds(claimed=file.cuts, recomputed=(32, proven.bound), rests_on=("HiGHS",))
    page = " ".join(CheckedSplit(split=file, shaped=shaped, certificate=True, bounds=again).page().split())
    assert "cut 1 has 32 B, of" in page and "confirmed" in page
    split = replace(split, cuts=(replace(first, status=Status.OPTIMAL, bound=first.value), proven))
    assert "no other cut after the cuts before it sends less" in " ".join(split_page(shaped, split, []).split())


def test_every_variable_of_the_lambda_is_found_or_refused(shaped, found):
    """A product of matrices has m, n and k."""
    op = explain_op(shaped, found.division, OP)
    ((k, all_ways),) = op.strategies
    assert k == 2
    assert {s.name for s in all_ways.admitted} | {r.variable for r in all_ways.refused} == {"m", "n", "k"}


def test_an_op_is_found_by_its_end_and_others_are_told():
    """The exact name goes first; an end that several have is refused, and so is none, each with names near it."""
    names = ("a/x", "b/x", "b/y", "x")
    assert (find_op(names, "x"), find_op(names, "y"), find_op(names, "a/x")) == (3, 2, 0)
    with pytest.raises(UsageError, match=r"2 ops end in 'x' - give one: a/x, b/x"):
        find_op(names[:3], "x")
    with pytest.raises(UsageError, match=r"no op 'b/z' - give one: "):
        find_op(names, "b/z")


def test_variables_add_up_to_the_parameters(shaped, found):
    """The table's bytes are those of the split; the largest come first."""
    held = [row.worker_bytes for row in variable_rows(shaped, found.division)]
    assert sum(held) == found.parameter_bytes
    assert held == sorted(held, reverse=True)


def test_classes_count_every_op_once(shaped, found):
    """Ops by class are all ops, and no more are cut than there are."""
    rows = division_tables(shaped, found.division).classes
    assert sum(many for _, many, _ in rows) == shaped.ops
    assert all(0 <= cut <= many for _, many, cut in rows)


def test_words_of_layouts():
    """Nested cuts of one dimension are one phrase."""
    assert layout_words((1, 1, WHOLE), (2, 3, 2)) == "dimension 1 in 2x3"
    assert layout_words((0, PARTIAL), (2, 4)) == "dimension 0 in 2, partial results of 4"
    assert layout_words((WHOLE,), (2,)) == "whole"


def test_nested_cuts_are_tuples_of_axes_and_alike_cuts_are_joined():
    """Outermost first, as PartitionSpec has it; cuts are one axis where all variables have them alike."""
    assert _axes((1, 0, 1), ["c0", "c1", "c2"], (4, 4, 4)) == ("c1", ("c0", "c2"), None)
    assert _joined([(0, 0, 1), (1, 1, 1)], 3) == [[0, 1], [2]]


def test_the_text_for_jax_says_each_variable(shaped, found):
    """It parses; each name has a spec with an entry for each dimension, and cuts as in the division."""
    tree = ast.parse(jax_text(shaped, found.division))
    (specs,) = [n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and n.targets[0].id == "specs"]
    said = {
        key.value: [ast.literal_eval(a) for a in call.args] for key, call in zip(specs.keys, specs.values, strict=True)
    }
    rows = variable_rows(shaped, found.division)
    assert said.keys() == {row.name for row in rows}
    for row in rows:
        axes = [axis for entry in said[row.name] if entry for axis in ((entry,) if isinstance(entry, str) else entry)]
        assert len(said[row.name]) == len(row.shape)
        assert sorted(axes) == [f"c{cut}" for cut, layout in enumerate(row.layouts) if layout >= 0]


def test_the_text_for_keras_runs(tmp_path):
    """Keras makes the LayoutMap, and finds the layout of a variable below any folder."""
    program = tmp_path / "layouts.py"
    program.write_text(run("--export", "keras").output)
    layouts = runpy.run_path(str(program))["layout_map"]
    axes = layouts["layer_0/kernel"].axes
    assert layouts["model/layer_0/kernel"].axes == axes
    assert any(axes)
    assert layouts["layer_0/kernels"] is None


def test_undescribed_types_that_matter_are_refused(shaped, tmp_path):
    """A type with large tensors and no description is named with the remedy; --whole accepts it."""
    assert undescribed_shares(shaped) == {}
    kinds = tuple(replace(s, type="MyMul") if s.type == "Mul" else s for s in shaped.signatures)
    mine = replace(shaped, signatures=kinds)
    assert undescribed_shares(mine)["MyMul"] > MATTERS
    with pytest.raises(UsageError, match=r"no description of MyMul, .*register, or say so"):
        refuse_undescribed(mine, "say so")
    save_typed_graph(mine, tmp_path / "step.json")
    words = ("split", str(tmp_path / "step.json"), "--workers", "2", "--method", "greedy", "--json")
    refused, accepted = CliRunner().invoke(pesto, words), CliRunner().invoke(pesto, [*words, "--whole"])
    assert isinstance(refused.exception, UsageError)
    assert "accept that with --whole" in str(refused.exception)
    assert json.loads(accepted.output)["uncovered"] == ["MyMul"]


def test_the_command_explains_draws_and_exports(tmp_path: Path):
    """One op on a page and in the JSON; a picture; exports stand alone."""
    page = run("--explain", OP).output
    assert "cut 2" in page and "parts: 0 [" in page
    op = json.loads(run("--explain", OP, "--json", "--draw", tmp_path / "a.svg").output)["op"]
    assert (op["name"], op["type"], op["class"]) == (OP, "MatMul", "contraction")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    assert isinstance(run("--export", "jax", "--json").exception, UsageError)


def test_a_picture_is_the_same_each_time(shaped, found):
    """Also of variables with one dimension, and whole ones."""
    assert draw_split(shaped, found.division, "svg") == draw_split(shaped, found.division, "svg")
