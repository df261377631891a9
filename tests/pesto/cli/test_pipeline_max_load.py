"""pesto pipeline --max-load: loads by their definition, a bound below all allocations, of chains and of steps."""

import json
from itertools import product

import pytest
from click.testing import CliRunner
from training_steps import training_step

from pesto.cli.main import pesto
from pesto.core.files.graph_file import save

LAYERS = [(2, 3), (1, 7), (4, 4), (2, 2), (3, 5)]
CHAIN = {
    "format": "pesto-chain", "format_version": 1, "transfers": [2, 1, 3, 1],
    "layers": [{"forward": a, "backward": b, "weights_bytes": 10, "activation_bytes": 4} for a, b in LAYERS],
}  # fmt: skip


def called(*words):
    return CliRunner().invoke(pesto, ["pipeline", *map(str, words), "--max-load"], standalone_mode=False)


def loads(device, devices):
    """Of a chain, one layer and one cut at a time."""
    busy = [0] * devices
    for layer, d in enumerate(device):
        busy[d] += sum(LAYERS[layer])
    for cut, ticks in enumerate(CHAIN["transfers"]):
        if device[cut] != device[cut + 1]:
            busy[device[cut]] += ticks
            busy[device[cut + 1]] += ticks
    return busy


@pytest.fixture(name="chain")
def _chain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chain.json").write_text(json.dumps(CHAIN))
    return "chain.json"


def test_a_chain(chain):
    """Loads are those of the layers that are listed; the bound is below the least of all allocations."""
    found = json.loads(called(chain, "--devices", 2, "--time-limit", 1, "--json").stdout)
    device = [0] * len(LAYERS)
    for d, row in enumerate(found["devices"]):
        for layer in row["layers"]:
            device[layer] = d
    assert [row["load"] for row in found["devices"]] == loads(device, 2)
    least = min(max(loads(each, 2)) for each in product(range(2), repeat=len(LAYERS)))
    assert found["bound"]["ticks"] <= least <= found["busiest"] == max(loads(device, 2)) <= found["runs_busiest"]
    assert found["gap"] == pytest.approx(found["busiest"] / found["bound"]["ticks"] - 1)


@pytest.mark.slow
def test_a_page(chain):
    """A row a device, then the greatest load, and the bound with its gap."""
    page = called(chain, "--devices", 2, "--time-limit", 1).stdout
    assert "5 layers on 2 devices" in page and "device 1" in page and "above it" in page


@pytest.mark.slow
def test_a_step(tmp_path, monkeypatch, make_graph):
    """Every layer of the folded step is on one accelerator of the cluster, by its name."""
    monkeypatch.chdir(tmp_path)
    save(make_graph(training_step(3).ops), "step.json")
    words = ("--graph", "step.json", "--cluster", "v100x2-pcie", "--micro-batches", 2, "--time-limit", 1, "--json")
    result = called(*words)
    if result.exception:
        raise result.exception
    found = json.loads(result.stdout)
    layers = sorted(layer for row in found["devices"] for layer in row["layers"])
    assert layers == list(range(len(layers))) and len(found["devices"]) == 2
    assert found["bound"]["ticks"] <= found["busiest"] == max(row["load"] for row in found["devices"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--devices", 2, "--schedule", "gpipe"), "schedules no batches"),
        (("--devices", 2, "--micro-batches", 4), "of one batch"),
        (("--devices", 2, "--memory", 3), "no runs of layers fit the memory"),
    ],
)
def test_what_does_not_go_with_it(chain, words, said):
    """Schedules, batches, and memory that no runs fit."""
    with pytest.raises(Exception, match=said):
        raise called(chain, *words).exception
