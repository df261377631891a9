"""Clusters shown wholly, and as a file that loads back to the same cluster; links of several pieces."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from cluster_files import HOST

from pesto.choosing.whatif.grid import ClusterPoint, scale_cluster
from pesto.cli.main import pesto
from pesto.core.cluster import Path
from pesto.core.costs.network import transfer_s
from pesto.core.errors import InputError, UsageError
from pesto.core.files import toml
from pesto.inputs import cluster_file
from pesto.inputs.cluster_file import cluster_names, describe_cluster, load_cluster

FILE = f"""\
# Two GPUs of a friend.
# Measured on a Sunday.
{HOST}[[devices]]
preset = "V100"
memory_gib = 16
count = 2
[[links]]
pairs = [["cpu", "gpu"]]
model = "pcie4"
lanes = 8
[[links]]
pairs = [["gpu", "gpu"]]
latency_us = 10
bandwidth_gb_s = 100
pieces = [[5, 2e-5], [0, 5e-5]]
floor_us = 11
source = "a stopwatch"
"""


def typed(*words):
    done = CliRunner().invoke(pesto, ["clusters", *words], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "friend.toml"
    path.write_text(FILE)
    return path


def test_a_preset_printed_as_a_file_loads_back(tmp_path):
    """Name, devices, links and paths of each are those of the preset; only where it came from differs."""
    for name in cluster_names():
        own = tmp_path / "own.toml"
        own.write_text(typed("--show", name, "--toml"))
        found, preset = load_cluster(str(own)), load_cluster(name)
        assert replace(found, source=preset.source, origin=preset.origin) == preset
        assert [p.source for row in found.paths for p in row if p] == [
            p.source for row in preset.paths for p in row if p
        ]


def test_a_file_without_a_name_keeps_the_one_it_had(file, tmp_path):
    """It is called as its file, so the copy says the name."""
    (tmp_path / "copy.toml").write_text(typed("--show", str(file), "--toml"))
    assert load_cluster(str(tmp_path / "copy.toml")).name == "friend"


@pytest.mark.parametrize(
    "name", ["v100x8", "v100x4x2-25gbe", "cpux2", "a100x8", "a100x8-80gb", "rtx4090x2", "h100x8x2-ndr"]
)
def test_a_cluster_is_shown_wholly(name):
    """Each device, each link that there is and each ordered pair stand on the page; no time is without a source."""
    cluster, page = load_cluster(name), typed("--show", name)
    lines = page.splitlines()
    for device in cluster.devices:
        model = device.preset.split()
        assert sum(line.split()[: 1 + len(model)] == [device.name, *model] for line in lines) == 1
        for other in cluster.devices:
            shown = sum(line.startswith(f"  {device.name} > {other.name} ") for line in lines)
            assert shown == (device is not other)
    assert all(link in page for link in cluster.links)
    assert "names no source" not in page and "modelled: " in page
    assert max(map(len, lines)) <= 80


def test_the_object_has_every_number_of_every_path(file):
    """What a program reads is what the simulator takes."""
    found = json.loads(typed("--show", str(file), "--json"))
    assert found["about"] == "Two GPUs of a friend. Measured on a Sunday."
    way = {(p["from"], p["to"]): p for p in found["paths"]}
    assert len(way) == 6
    between = way["gpu:0", "gpu:1"]
    assert (
        np.allclose(between["pieces"], [[5e-6, 2e-11], [0, 5e-11]], rtol=1e-12, atol=0)
        and between["source"] == "a stopwatch"
    )
    assert between["links"] == ["gpu:0>gpu:1"] and between["floor_s"] == pytest.approx(11e-6)
    assert "8 x 1.96923 GB/s" in way["cpu:0", "gpu:1"]["source"]


def test_pieces_are_the_longest_of_all_lines(file):
    """10 + B/100 GB/s, 5 + 2e-5 B, 5e-5 B, 11 us at least, by hand; the same in a problem, and halved twice as fast."""
    cluster = load_cluster(str(file))
    path = cluster.paths[1][2]
    # 1 kB: 10.01 < 11; 200 kB: 12 > 9, 10; 600 kB: 16 < 17 < 30; 1 MB: 50.
    sizes = [1_000, 200_000, 600_000, 1_000_000]
    assert transfer_s(path, sizes) == pytest.approx([11e-6, 12e-6, 30e-6, 50e-6])
    fast = scale_cluster(cluster, ClusterPoint(devices=2, links=2)).paths[1][2]
    assert transfer_s(fast, sizes) == pytest.approx(transfer_s(path, sizes) / 2)
    more = scale_cluster(cluster, ClusterPoint(devices=4))
    assert more.paths[3][4].pieces == path.pieces and more.paths[3][4].source == "a stopwatch"


def test_a_piecewise_time_is_convex():
    """Between any two sizes it lies below their line, whatever the pieces."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        pieces = tuple((float(a), float(b)) for a, b in rng.random((4, 2)) * (1e-5, 1e-10))
        path = Path(latency_s=1e-6, s_per_byte=1e-11, floor_s=2e-6, pieces=pieces)
        a, b, share = rng.integers(0, 10**7), rng.integers(0, 10**7), rng.random()
        between = transfer_s(path, share * a + (1 - share) * b)
        assert between <= share * transfer_s(path, a) + (1 - share) * transfer_s(path, b) + 1e-18


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lanes = 8", "lanes = 0", r"links\[0\].lanes"),
        ("lanes = 8", "lanes = 8\nfloor_us = 1", "brings its own numbers"),
        ("lanes = 8", "pieces = [[1, 1]]", "brings its own numbers"),
        ("floor_us = 11", "lanes = 2", "lanes are those of a model - name one"),
        ('model = "pcie4"', 'model = "paper-pcie-cpu-gpu"', "fitted to one box - drop lanes"),
        ("[0, 5e-5]", "[0, -5e-5]", r"links\[1\].pieces\[1\]"),
        ("[0, 5e-5]", "[0]", r"links\[1\].pieces\[1\]"),
        ("[0, 5e-5]", "[0, nan]", "not a finite number"),
        ("[5, 2e-5], [0, 5e-5]", ", ".join(["[1, 1]"] * 17), r"links\[1\].pieces"),
    ],
)
def test_bad_links_are_named(old, new, message):
    """Each mistake is one line that names the place."""
    assert old in FILE
    with pytest.raises(InputError, match=message) as caught:
        cluster_file.parse(FILE.replace(old, new).encode(), "my.toml", "my.toml")
    assert "\n" not in str(caught.value)


def test_a_file_is_printed_of_one_cluster_alone():
    """Without a name there is nothing to print, and beside an object there is no place for it."""
    for words in (("--toml",), ("--show", "cpux2", "--toml", "--json")):
        with pytest.raises(UsageError, match="give it with --show NAME, and without --json"):
            typed(*words)
    with pytest.raises(UsageError, match="did you mean cpux2"):
        typed("--show", "cpux")


def test_values_written_as_toml_are_read_back(file):
    """Tables, pairs and texts of any characters that a file may have."""
    found = toml.parse(FILE.encode(), cluster_file.File, "x", InputError)
    odd = replace(found, name='a "quoted" \\ µ name', hosts=(replace(found.hosts[0], name="h"),))
    for value in (found, odd):
        assert toml.parse(toml.dumps(value).encode(), cluster_file.File, "x", InputError) == value
    assert describe_cluster(str(file)).about.startswith("Two GPUs")
