"""Plans, splits and patterns of files of the first version, as one noun to all verbs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import InputError
from pesto.core.source import Source
from pesto.verbs.artifacts import GivenStep, as_object, kind_of, load_artifact, load_plan, save, verify

DATA = Path(__file__).parents[2] / "data"
STEPS = {"plan": DATA / "two-towers.graph.json", "split": DATA / "format-1" / "step.shaped.json", "pattern": None}
KEYS = ["kind", "makespan_s", "lower_bound_s", "gap", "fits", "peak_bytes"]


def file_of(kind: str) -> Path:
    return DATA / "format-1" / f"{kind}.json"


@pytest.mark.parametrize("kind", STEPS)
def test_a_file_of_the_first_version_is_read_and_saved_as_it_was(kind, tmp_path) -> None:
    artifact = load_artifact(file_of(kind))
    assert kind_of(artifact) == kind
    save(artifact, tmp_path / "again.json")
    saved, first = (json.loads(path.read_text()) for path in (tmp_path / "again.json", file_of(kind)))
    if kind == "plan":
        made = saved["provenance"]
        origin = made.pop("graph_origin")
        assert (origin["kind"], made.pop("costs_files")) == ("other", [])
        assert made.pop("cluster_origin") == {"kind": "preset", "name": "v100x2-nvlink", "digest": ""}
    if kind == "split":
        assert saved.pop("graph_origin")["kind"] == "other"
    assert saved == first


@pytest.mark.parametrize("kind", STEPS)
def test_all_artifacts_are_checked_and_have_the_same_keys(kind) -> None:
    step = STEPS[kind]
    words = [str(file_of(kind)), *(["--graph", str(step)] if step else [])]
    done = CliRunner().invoke(pesto, ["check", *words, "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert [*said][:6] == KEYS and said["kind"] == kind and said["valid"]
    artifact = load_artifact(file_of(kind))
    assert {key: said[key] for key in KEYS} == as_object(artifact)


def test_values_of_the_keys() -> None:
    """A plan has all; a pattern its bytes; a split that was not timed none."""
    plan, split, pattern = (as_object(load_artifact(file_of(kind))) for kind in STEPS)
    assert plan["makespan_s"] == pytest.approx(1072598e-9) and plan["gap"] == 0.0 and plan["fits"]
    assert plan["peak_bytes"] == {"cpu:0": 65536, "gpu:0": 131072, "gpu:1": 131072}
    assert {split[key] for key in KEYS[1:]} == {None}
    assert pattern["fits"] and pattern["peak_bytes"] == {"0": 52, "1": 32} and pattern["makespan_s"] is None


def test_a_verb_that_takes_plans_says_which_kind_it_was_given() -> None:
    for kind, verbs in (
        ("split", ("simulate", "report", "explain", "trace", "draw")),
        ("pattern", ("simulate", "report", "explain", "trace", "draw", "apply", "run")),
    ):
        for verb in verbs:
            words = [verb, str(file_of(kind)), *(["-o", "out.pb"] if verb == "apply" else [])]
            error = CliRunner().invoke(pesto, words).exception
            takes = "a plan or a split" if verb in ("apply", "run") else "a plan"
            assert isinstance(error, InputError), (verb, kind, error)
            assert (error.message, error.where) == (
                f"it is a {kind}, and pesto {verb} takes {takes}", str(file_of(kind)),
            )  # fmt: skip
            assert error.remedy
    with pytest.raises(InputError, match="it is a split, and pesto diff takes a plan - give two plans"):
        load_plan(file_of("split"), "diff")


def test_what_is_no_artifact_is_refused() -> None:
    with pytest.raises(InputError, match="pesto-graph"):
        load_artifact(DATA / "two-towers.graph.json")


def test_a_step_is_read_by_the_caller_of_verify() -> None:
    """As a job does, which counts the ops that it may have."""
    read = []

    def refuse(source):
        read.append(source.file)
        raise InputError.build("too many ops", remedy="give a smaller step")

    for kind in ("plan", "split"):
        given = GivenStep(source=Source(file=STEPS[kind]), read_graph=refuse, read_shapes=refuse)
        with pytest.raises(InputError, match="too many ops - give a smaller step"):
            verify(load_artifact(file_of(kind)), given, "x")
    assert read == [STEPS["plan"], STEPS["split"]]


def test_verbs_that_make_artifacts_print_the_same_keys(tmp_path, monkeypatch) -> None:
    """Seconds of a pattern follow from the ticks a second of its chain; a split without a cluster has none."""
    monkeypatch.chdir(tmp_path)
    layer = {"forward": 2, "backward": 3, "weights_bytes": 10, "activation_bytes": 4}
    chain = {"format": "pesto-chain", "format_version": 1, "layers": [layer] * 4, "transfers": [1, 1, 1]}
    (tmp_path / "chain.json").write_text(json.dumps(chain | {"ticks_per_second": 1000}))
    said = {}
    for kind, words in (
        ("plan", ["solve", "--graph", str(STEPS["plan"]), "--solver", "list", "--time-limit", "0", "-q", "-o", "p"]),
        ("split", ["split", str(STEPS["split"]), "--workers", "2"]),
        ("pattern", ["pipeline", "chain.json", "--devices", "2", "--micro-batches", "4", "-o", "pattern.json"]),
    ):
        done = CliRunner().invoke(pesto, [*words, "--json"])
        assert done.exit_code == 0, done.output
        said[kind] = json.loads(done.stdout)
        assert [*said[kind]][:6] == KEYS and said[kind]["kind"] == kind
    plan, split, pattern = said.values()
    assert plan["makespan_s"] >= plan["lower_bound_s"] > 0 and plan["fits"] is True
    assert split["makespan_s"] is None and split["bytes"] == 128
    assert pattern["makespan_s"] == pattern["step"] / 1000 and pattern["lower_bound_s"] <= pattern["makespan_s"]
    assert pattern["gap"] == pytest.approx(1 - pattern["lower_bound_s"] / pattern["makespan_s"])
    assert pattern["fits"] and pattern["peak_bytes"] == as_object(load_artifact(Path("pattern.json")))["peak_bytes"]
