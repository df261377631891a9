"""Partial splits: some ops are cut, the rest is whole on any device; what is computed is the whole step's."""

from dataclasses import replace

import numpy as np
import pytest
from partition_bytes import moved

from pesto.core.errors import VerificationError
from pesto.split.files.split_check import verify_split
from pesto.split.files.split_file import dumps_split, loads_split
from pesto.split.op_strategy import ONCE_WAY, cut_ops
from pesto.split.program import CutGain
from pesto.split.split_search import divide_partly
from pesto.split.worker_parts import build_worker_parts
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf import models  # noqa: E402
from pesto.tf.partition.partition_run import run_parts  # noqa: E402
from pesto.tf.partition.partitioned import partition  # noqa: E402
from pesto.tf.shaping.shaping import shape  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def model(name):
    """The captured step of a built-in model, what its ops are, and the step."""
    step = models.build(name, "tiny", None)
    captured = sources.capture_v1(step.graph, step.fetches, source=name)
    return captured, shape(captured)[1], step


def partly(shaped, workers, seed, share=0.2):
    """Some ops cut, by lot, and whatever goes well with them."""
    random = np.random.default_rng(seed)
    worth = np.where(random.random(shaped.ops) < share, 1 << 30, 0).tolist()
    found = divide_partly(shaped, workers, CutGain(worth=worth), seconds=60)
    assert found is not None and {True, False} <= set(cut_ops(found.division.strategies))
    return found


def scattered(shaped, split, devices, seed):
    """The split with every part on a device by lot: variables with what takes them, the parts of an op apart."""
    random = np.random.default_rng(seed)
    parts = build_worker_parts(shaped, split.division)
    on = random.permutation(devices)
    home = random.integers(devices, size=len(shaped.handle))[shaped.tie]
    places = random.integers(devices, size=len(parts.parts))
    for number, part in enumerate(parts.parts):
        if parts.clone[part.op, part.worker] == number and ONCE_WAY not in split.division.strategies[part.op].names:
            places[number] = on[part.worker]
    for ops, variables in ((shaped.handle, np.arange(len(shaped.handle))), (shaped.use_op, shaped.use_variable)):
        for op, variable in zip(ops.tolist(), variables.tolist(), strict=True):
            if ONCE_WAY in split.division.strategies[op].names:
                places[parts.clone[op, 0]] = home[variable]
    return replace(split, division=replace(split.division, places=tuple(places.tolist())))


def check(name, workers, devices, seed):
    """A run of a scattered partial split, and its file."""
    captured, shaped, step = model(name)
    split = partly(shaped, workers, seed)
    assert build_worker_parts(shaped, split.division).moved_bytes() == split.moved_bytes
    split = scattered(shaped, split, devices, seed)
    found = loads_split(dumps_split(shaped, split, time_limit_s=1.0), "split.json")
    division = verify_split(found, shaped)
    assert division == split.division
    ran = run_parts(captured, shaped, division, step, steps=3, devices="cpu")
    assert ran.as_whole and ran.finite and not ran.moves, ran
    assert len(ran.devices) == found.devices <= devices
    where = [f"/device:CPU:{k + 1}" for k in range(division.devices)]
    made = partition(captured.graph_def, shaped, division, captured.fetches, devices=where)
    assert moved(made.graph_def) == made.parts.moved_bytes() == ran.moved_bytes
    return made


def test_a_model_runs_partly_cut():
    """Wherever parts are, the step is the whole one; each variable's parts are restored where they are held."""
    made = check("rnnlm", 2, 3, 0)
    device = {node.name: node.device for node in made.graph_def.node}
    for variable in made.variables:
        for name in variable.parts:
            assert device[name] == device[f"{made.checkpoints.restore}/{name}"]
    assert {len(variable.parts) for variable in made.variables} == {1, 2}


SOME = [("rnnlm", 4, 4), ("nmt", 2, 4), ("transformer", 2, 2), ("nasnet", 2, 2), ("wrn", 4, 4)]
ALL = [(name, *how) for name in ("rnnlm", "nmt", "transformer", "nasnet", "wrn") for how in ((2, 2), (2, 4), (4, 4))]
OTHERS = [pytest.param(*one, marks=pytest.mark.night) for one in ALL if one not in SOME]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "workers", "devices"), [*SOME, *OTHERS])
def test_all_models_run_partly_cut(name, workers, devices):
    """Ditto for every model."""
    check(name, workers, devices, workers + devices)


@pytest.fixture(scope="module")
def kept():
    """(shapes, split, its division) of a small step whose product is cut."""
    _, shaped, _ = model("rnnlm")
    split = scattered(shaped, partly(shaped, 2, 1), 2, 1)
    return shaped, split, split.division


def refused(kept, division):
    shaped, split, _ = kept
    data = dumps_split(shaped, replace(split, division=division), time_limit_s=1.0)
    with pytest.raises(VerificationError) as error:
        verify_split(loads_split(data, "split.json"), shaped)
    return str(error.value)


def test_wrong_places_are_found(kept):
    """Places that are lacking, two parts of an op on one device, a variable apart from its ops, a handle elsewhere."""
    shaped, _, division = kept
    assert "ops that are whole" in refused(kept, replace(division, places=()))
    assert "places, and" in refused(kept, replace(division, places=division.places[:-1]))
    assert "on one device" in refused(kept, replace(division, places=(0,) * len(division.places)))
    parts = build_worker_parts(shaped, division)
    alone = next(
        op for op in shaped.use_op.tolist() if ONCE_WAY in division.strategies[op].names and parts.clone[op, 0] >= 0
    )
    places = list(division.places)
    places[parts.clone[alone, 0]] ^= 1
    assert "another device than the variable" in refused(kept, replace(division, places=tuple(places)))
    cut = next(
        int(op)
        for op, lies in zip(shaped.handle, division.variables, strict=True)
        if ONCE_WAY not in division.strategies[op].names and lies[0] >= 0
    )
    ways = list(division.strategies)
    ways[cut] = replace(ways[cut], names=(ONCE_WAY,), gives=((-3,),))
    assert "makes a handle on other workers" in refused(kept, replace(division, strategies=tuple(ways)))
