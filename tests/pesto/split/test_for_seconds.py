"""Splits for seconds: blocks are counted as parts send them, ops as parts take them, and nothing costs less."""

import json
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pesto.cli.main import pesto
from pesto.core.errors import UsageError, VerificationError
from pesto.core.source import Source
from pesto.split.op_strategy import ONCE_WAY, WHOLE_WAY
from pesto.split.program import Prices, Rules
from pesto.split.split_search import divide
from pesto.split.worker_parts import CLONE, build_worker_parts
from pesto.tf import named_sources

MESSAGE, KERNEL, WORK = 5_000, 300, 1_700
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def rnnlm():
    return named_sources.load_typed(Source(model="rnnlm", variant="tiny"))[1]


def run(*words: object) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(pesto, [str(word) for word in words])


def rules(shaped, **prices: int) -> Rules:
    given = {"message": MESSAGE, "kernel": KERNEL, "ops": (WORK,) * shaped.ops, **prices}
    return Rules(redundant=True, prices=Prices(unit_s=1.0, **given))


def blocks(parts):
    """What crosses workers for readers among ops: each output of a part once for each device that reads it."""
    edges = slice(0, parts.for_results)
    src, dst = parts.src[edges], parts.dst[edges]
    place, fed = parts.place, parts.fed
    crosses = (place[src] != place[dst]) & ~fed[src]
    return len(set(zip(src[crosses].tolist(), parts.output[edges][crosses].tolist(), place[dst[crosses]], strict=True)))


def cost(shaped, division):
    """Of a division, from its parts alone: bytes, blocks, and the work of each clone."""
    parts = build_worker_parts(shaped, division)
    work = 0
    for part in parts.parts:
        if part.kind == CLONE and shaped.signature(part.op).type not in ("VarHandleOp", "NoOp"):
            way = division.strategies[part.op]
            cut = [k for n, k in zip(way.names, division.factors, strict=True) if n not in (WHOLE_WAY, ONCE_WAY)]
            work += KERNEL + (WORK - KERNEL) // prod(cut)
    return parts.moved_bytes() + MESSAGE * blocks(parts) + work


@pytest.mark.parametrize("factors", [(2,), pytest.param((3,), marks=SLOW), pytest.param((2, 2), marks=SLOW)])
def test_blocks_are_counted_as_parts_send_them(rnnlm, factors):
    priced = rules(rnnlm, kernel=0, ops=(0,) * rnnlm.ops)
    split = divide(rnnlm, factors, "exact", priced, seconds=60)
    parts = build_worker_parts(rnnlm, split.division)
    assert split.objective.value_s == split.moved_bytes + MESSAGE * blocks(parts)
    assert blocks(parts) > 0


@pytest.mark.parametrize("factors", [pytest.param((2,), marks=SLOW), pytest.param((4,), marks=SLOW)])
def test_a_split_for_seconds_costs_no_more_than_one_for_bytes(rnnlm, factors):
    priced = divide(rnnlm, factors, "exact", rules(rnnlm), seconds=60)
    least = divide(rnnlm, factors, "exact", Rules(), seconds=60)
    assert cost(rnnlm, priced.division) < cost(rnnlm, least.division)
    assert priced.objective.bound_s == pytest.approx(priced.objective.value_s, rel=1e-6)
    assert least.moved_bytes <= priced.moved_bytes


@pytest.mark.slow
def test_known_constants_are_the_only_ops_whose_clones_are_not_there(rnnlm):
    split = divide(rnnlm, (2,), "exact", rules(rnnlm), seconds=60)
    left_out = (build_worker_parts(rnnlm, split.division).clone < 0).all(axis=1)
    assert split.objective.value_s - cost(rnnlm, split.division) == 2 * WORK * np.count_nonzero(left_out)


@pytest.mark.slow
def test_bytes_are_not_bounded_by_a_split_for_seconds(rnnlm):
    split = divide(rnnlm, (2, 2), "exact", rules(rnnlm), seconds=60)
    assert (split.status, split.bound_bytes, split.counted_bytes) == ("feasible", 0, split.moved_bytes)
    assert all(cut.bound == 0 for cut in split.cuts)


def test_a_method_that_counts_bytes_alone_is_refused(rnnlm):
    with pytest.raises(UsageError, match="counts bytes alone - use exact"):
        divide(rnnlm, (2,), "tofu", rules(rnnlm), seconds=60)


def test_where_messages_cost_most_nothing_is_cut(rnnlm):
    """All done by all then saves seconds, and sends nothing: that is no split."""
    dear = replace(rules(rnnlm, message=10**9), replicate=True)
    with pytest.raises(UsageError, match="no cut in 2 saves modelled seconds - leave the objective at bytes"):
        divide(rnnlm, (2,), "exact", dear, seconds=60)


@pytest.mark.slow
def test_from_the_command_line_to_a_checked_file(tmp_path):
    asked = ["split", "--model", "rnnlm", "--variant", "tiny", "--workers", "2", "--cluster", "v100x2-nvlink"]
    for_bytes, out = run(*asked, "--json"), tmp_path / "split.json"
    assert json.loads(for_bytes.stdout)["objective"] == "bytes"
    told = json.loads(run(*asked, "--objective", "seconds", "-o", out, "--json").stdout)
    assert (told["objective"], told["bound_bytes"], told["status"]) == ("seconds", 0, "feasible")
    assert told["objective_bound_s"] <= told["objective_s"]
    assert told["makespan_s"] <= json.loads(for_bytes.stdout)["makespan_s"]
    checked = run("check", out, "--certificate")
    assert checked.exit_code == 0
    assert "no bound is known" in " ".join(checked.stdout.split())
    claims = json.loads(out.read_text())
    for forged in ({"bound_bytes": 1}, {"cuts": [{**claims["cuts"][0], "bound_bytes": 1}]}):
        out.write_text(json.dumps({**claims, **forged}))
        wrong = run("check", out).exception
        assert isinstance(wrong, VerificationError)
        assert "made for seconds, and bounds bytes" in str(wrong)


@pytest.mark.parametrize(
    ("more", "said"),
    [((), "give a cluster"), (("--cluster", "v100x2-nvlink", "--halo"), "count bytes"),
     (("--cluster", "v100x2-nvlink", "--memory", "1"), "count bytes"),
     (("--cluster", "v100x2-nvlink", "--method", "rows"), "counts bytes alone")],
)  # fmt: skip
def test_seconds_are_refused_where_nothing_says_them(more, said):
    found = run("split", "--model", "rnnlm", "--variant", "tiny", "--workers", "2", "--objective", "seconds", *more)
    assert isinstance(found.exception, UsageError)
    assert said in str(found.exception)


@pytest.mark.slow
def test_rules_without_prices_are_those_of_bytes(rnnlm):
    priced = rules(rnnlm, message=0, kernel=0, ops=(0,) * rnnlm.ops)
    free = divide(rnnlm, (2,), "exact", priced, seconds=60)
    least = divide(rnnlm, (2,), "exact", replace(priced, prices=None), seconds=60)
    assert free.moved_bytes == least.moved_bytes
