"""Cluster files: the presets are the machines they claim to be, and bad content is refused by name."""

from pathlib import Path

import numpy as np
import pytest
from cluster_files import HOST, parse
from hypothesis import given
from hypothesis import strategies as st

from pesto.core.costs.measured import Profile, save_profile
from pesto.core.costs.network import transfer_s
from pesto.core.errors import FileError, InputError, PestoError, UsageError
from pesto.core.files import toml
from pesto.inputs import cluster_file
from pesto.inputs.cluster_file import cluster_names, load_cluster
from pesto.verbs import api

ROOT = Path(__file__).resolve().parents[3]
VALID = f"""\
{HOST}[[devices]]
preset = "V100"
memory_gib = 0.5
count = 2
[[links]]
pairs = [["cpu", "gpu"], ["gpu:0", "gpu:1"]]
latency_us = 10
bandwidth_gb_s = 2
floor_us = 11.5
"""
PRESETS = {  # devices with the CPUs, GiB per GPU, preset
    "v100x2-nvlink": (3, 16, "V100"), "v100x2-pcie": (3, 16, "V100"), "v100x4": (5, 16, "V100"),
    "v100x8": (9, 16, "V100"), "v100x16": (17, 32, "V100"), "k80x8": (9, 12, "K80"), "a100x8": (9, 40, "A100"),
    "v100x4x2-25gbe": (10, 16, "V100"), "k80x8-switched": (9, 12, "K80"),
    "h100x8": (9, 80, "H100"), "h200x8": (9, 141, "H200"), "a100x8-80gb": (9, 80, "A100"), "l40sx4": (5, 48, "L40S"),
    "rtx4090x2": (3, 24, "RTX 4090"), "h100x8x2-ndr": (18, 80, "H100"),
}  # fmt: skip
LOGICAL = {"cpux2": 2, "cpux3": 3, "cpux4": 4}


def path(cluster, a, b):
    names = [d.name for d in cluster.devices]
    return cluster.paths[names.index(a)][names.index(b)]


def held(cluster, a, b):
    return {cluster.links[k] for k in path(cluster, a, b).links}


def test_presets_are_the_promised_ones():
    """These names exist, no more, and each of a box has its GPUs with their memory."""
    assert set(cluster_names()) == {*PRESETS, *LOGICAL}
    for name, (devices, gib, model) in PRESETS.items():
        found = load_cluster(name)
        gpus = [d for d in found.devices if d.kind == "gpu"]
        assert (found.name, found.source, len(found.devices)) == (name, f"preset {name}", devices)
        assert {(g.preset, g.memory_bytes, g.cores) for g in gpus} == {(model, gib * 2**30, 1)}
        assert [g.name for g in gpus] == [f"gpu:{i}" for i in range(len(gpus))]
        assert [d.host for d in found.devices if d.kind == "cpu"] == list(range(devices - len(gpus)))


def test_paper_boxes_use_the_published_coefficients():
    """A transfer of 10 MB costs what the printed coefficients say, in both directions."""
    nvlink, pcie = load_cluster("v100x2-nvlink"), load_cluster("v100x2-pcie")
    expected = [  # microseconds: b0 + b1 * 1e7
        (nvlink, "cpu:0", "gpu:1", 7.0 + 777.78), (nvlink, "gpu:0", "gpu:1", 40.771 + 207.573),
        (pcie, "cpu:0", "gpu:1", 21.48 + 781.0), (pcie, "gpu:0", "gpu:1", 5.581 + 1002.44),
    ]  # fmt: skip
    for cluster, a, b, us in expected:
        for one, other in ((a, b), (b, a)):
            assert transfer_s(path(cluster, one, other), 10**7) == pytest.approx(us * 1e-6, rel=1e-12)
    # 5.581 + 1000 * 1.00244e-4 = 5.68 us is below the floor.
    assert transfer_s(path(pcie, "gpu:0", "gpu:1"), 1000) == pytest.approx(15e-6)
    assert nvlink.devices[0].cores == 12


def test_dedicated_links_are_full_duplex():
    """In the NVLink box all six ordered pairs have a link of their own."""
    found = load_cluster("v100x2-nvlink")
    used = [p.links for row in found.paths for p in row if p is not None]
    assert len(used) == len(set(used)) == len(found.links) == 6


def test_pcie_box_shares_lanes_with_the_cpu():
    """Without NVLink a GPU sends over its own lanes up and the other's lanes down."""
    found = load_cluster("v100x2-pcie")
    assert held(found, "gpu:0", "gpu:1") == held(found, "gpu:0", "cpu:0") | held(found, "cpu:0", "gpu:1")
    assert not held(found, "gpu:0", "gpu:1") & held(found, "gpu:1", "gpu:0")


def test_cube_mesh_has_six_nvlinks_per_gpu():
    """DGX-1: six NVLinks a GPU, 24 in all, and the pairs without one cross PCIe and QPI."""
    found = load_cluster("v100x8")
    # A bonded pair is the paper's link; a single one takes twice the seconds per byte.
    bonds = {2.07573e-11: 2, 4.15146e-11: 1, 1.00244e-10: 0}
    for a in range(8):
        ways = {b: bonds[round(path(found, f"gpu:{a}", f"gpu:{b}").s_per_byte, 16)] for b in range(8) if b != a}
        assert sum(ways.values()) == 6
        quad = set(range(4)) if a < 4 else set(range(4, 8))
        assert {b for b, n in ways.items() if n} == quad - {a} | {(a + 4) % 8}
        for b in (b for b, n in ways.items() if not n):
            qpi = "qpi 0>1" if a < 4 else "qpi 1>0"
            assert held(found, f"gpu:{a}", f"gpu:{b}") == {f"gpu:{a}>cpu:0", qpi, f"cpu:0>gpu:{b}"}


@pytest.mark.parametrize("name", ["v100x16", "a100x8", "h100x8", "h200x8", "a100x8-80gb"])
def test_switch_shares_only_ports(name):
    """Behind an NVSwitch transfers meet at the sender's way out or the receiver's way in, and nowhere else."""
    found = load_cluster(name)
    assert len(held(found, "gpu:0", "gpu:1") & held(found, "gpu:0", "gpu:2")) == 1
    assert len(held(found, "gpu:0", "gpu:1") & held(found, "gpu:2", "gpu:1")) == 1
    assert not held(found, "gpu:0", "gpu:1") & held(found, "gpu:1", "gpu:0")
    assert not held(found, "gpu:0", "gpu:1") & held(found, "gpu:2", "gpu:3")


def test_pcie_cards_share_their_lanes_with_the_cpu():
    """Without NVLink a transfer takes the lanes up of one GPU and those down of the other, at PCIe 4.0's rate."""
    for name in ("l40sx4", "rtx4090x2"):
        found = load_cluster(name)
        assert held(found, "gpu:0", "gpu:1") == held(found, "gpu:0", "cpu:0") | held(found, "cpu:0", "gpu:1")
        one, two = path(found, "gpu:0", "cpu:0"), path(found, "gpu:0", "gpu:1")
        assert 1e-9 / two.s_per_byte == pytest.approx(24.98, abs=0.01) == 1e-9 / one.s_per_byte
    assert two.latency_s == 2 * one.latency_s  # GeForce: through the host's memory


def test_the_larger_a100_reads_its_memory_faster():
    """2 039 GB/s by its datasheet, where the preset, of the one of 40 GB, has 1 555."""
    plain, larger = (load_cluster(name).devices[1].rates for name in ("a100x8", "a100x8-80gb"))
    assert plain is None and larger.bandwidth == 2039e9


def test_each_gpu_of_two_hosts_has_an_infiniband_card():
    """NDR at 47.7 of 50 GB/s; transfers of two GPUs of one host do not meet, two to one GPU do."""
    found = load_cluster("h100x8x2-ndr")
    assert 1e-9 / path(found, "gpu:3", "gpu:12").s_per_byte == pytest.approx(47.7)
    assert held(found, "gpu:3", "gpu:12") == {"nic gpu:3 out", "nic gpu:12 in"}
    assert not held(found, "gpu:0", "gpu:8") & held(found, "gpu:1", "gpu:9")
    assert held(found, "gpu:0", "gpu:8") & held(found, "gpu:1", "gpu:8") == {"nic gpu:8 in"}
    assert held(found, "gpu:0", "gpu:7") == {"nvswitch gpu:0 out", "nvswitch gpu:7 in"}


def test_k80_box_has_one_pcie_root():
    """Every transfer up shares one link, every transfer down the other, and between dies both."""
    found = load_cluster("k80x8")
    assert held(found, "gpu:3", "cpu:0") == {"pcie root up"}
    assert held(found, "cpu:0", "gpu:5") == {"pcie root down"}
    assert held(found, "gpu:0", "gpu:7") == {"pcie root up", "pcie root down"} == set(found.links)


def test_two_hosts_share_their_network_cards():
    """Across hosts every transfer holds the sender's card out and the receiver's card in, at 25 Gb/s or less."""
    found = load_cluster("v100x4x2-25gbe")
    assert [d.host for d in found.devices] == [0, 1, 0, 0, 0, 0, 1, 1, 1, 1]
    for a, b in (("gpu:0", "gpu:4"), ("gpu:3", "gpu:7"), ("cpu:0", "gpu:5"), ("cpu:0", "cpu:1")):
        assert held(found, a, b) == {"nic a out", "nic b in"}
        assert held(found, b, a) == {"nic b out", "nic a in"}
        assert path(found, a, b).s_per_byte >= 8 / 25e9
    assert not held(found, "gpu:0", "gpu:1") & {"nic a out", "nic a in"}


@pytest.mark.parametrize("name", LOGICAL)
def test_logical_cpus_are_devices_of_one_core(name):
    """Devices cpu:0 to cpu:N-1 of one host, one op at a time each; bytes are free and nothing is shared."""
    found = load_cluster(name)
    assert [d.name for d in found.devices] == [f"cpu:{k}" for k in range(LOGICAL[name])]
    assert {(d.kind, d.cores, d.host, d.memory_bytes) for d in found.devices} == {("cpu", 1, 0, 16 * 2**30)}
    assert found.links == ()
    for a, row in enumerate(found.paths):
        assert [b for b, p in enumerate(row) if p is None] == [a]
        assert {p.cost for p in row if p is not None} == {(1.5e-6, 0.0, 0.0)}


def test_logical_cpus_from_profile_to_checked_plan(tmp_path, make_graph):
    """Four ops of 1 ms, two of them side by side: 3 ms, and one transfer, as d runs where the later branch ends."""
    graph = make_graph(
        [{"name": "a", "bytes": 8}, *({"name": n, "inputs": ["a"], "bytes": 8} for n in "bc"),
         {"name": "d", "inputs": ["b", "c"]}]
    )  # fmt: skip
    rest = np.zeros(4)
    profile = Profile(
        fingerprint=graph.fingerprint(), kind="cpu", device="a core", iterations=2, seconds=np.full(4, 1e-3),
        spread=rest, raw_spread=rest, source="test",
    )  # fmt: skip
    save_profile(tmp_path / "p.json", profile, graph)
    plan = api.solve(graph, cluster="cpux2", costs=tmp_path / "p.json", time_limit_s=600, workers=1)
    assert plan.makespan_s == pytest.approx(3e-3 + 1.5e-6, rel=1e-9)
    assert plan.provenance.costs_basis == "measured"
    api.check(plan, graph, cluster="cpux2", costs=tmp_path / "p.json")


def test_file_of_ones_own(tmp_path):
    """Names, bytes and seconds follow from the file; the latency of 10 us is below the floor for small payloads."""
    file = tmp_path / "mine.toml"
    file.write_text(VALID)
    found = load_cluster(str(file))
    assert (found.name, found.source) == ("mine", "mine.toml")
    assert [d.name for d in found.devices] == ["cpu:0", "gpu:0", "gpu:1"]
    assert found.devices[1].memory_bytes == 2**29
    # 10 us + 3000 bytes / (2e9 bytes/s) = 11.5 us, exactly the floor.
    assert transfer_s(path(found, "gpu:0", "gpu:1"), [0, 3000, 4000]) == pytest.approx([11.5e-6, 11.5e-6, 12e-6])


def test_later_links_win_and_one_way_is_one_way():
    """A general rule and an exception for one direction."""
    extra = (
        '[[links]]\npairs = [["gpu:1", "gpu:0"]]\none_way = true\nlatency_us = 1\nus_per_byte = 0\nholds = ["bus"]\n'
    )
    found = parse(VALID + extra)
    assert path(found, "gpu:1", "gpu:0").latency_s == 1e-6
    assert path(found, "gpu:0", "gpu:1").latency_s == 1e-5
    assert held(found, "gpu:1", "gpu:0") == {"bus"}


def test_wrong_name_suggests_the_right_one():
    """A misspelt preset is a usage error that names the nearest and lists all."""
    with pytest.raises(UsageError, match=r"did you mean v100x2-nvlink\? known: a100x8, a100x8-80gb, cpux2"):
        load_cluster("v100x2-nvlnk")
    with pytest.raises(UsageError, match="did you mean v100x2-nvlink"):
        load_cluster("v100x2")
    with pytest.raises(FileError, match="no such file"):
        load_cluster("./v100x2")


BAD = {
    "empty": ("", "", "missing required field `format_version`"),
    "not TOML": ("cores = 4", "cores = = 4", "not TOML.*line 4"),
    "key twice": ("cores = 4", "cores = 4\ncores = 4", "not TOML.*line 5"),
    "unknown key": ("cores = 4", "corse = 4", r"hosts\[0\] has the unknown key 'corse' - did you mean cores"),
    "unknown table": ("[[links]]", "[[link]]", "the file has the unknown key 'link' - did you mean links"),
    "missing key": ("cores = 4\n", "", r"hosts\[0\].*`cores`"),
    "wrong type": ("cores = 4", 'cores = "4"', r"hosts\[0\].cores: Expected `int`, got `str`"),
    "version": ("format_version = 1", "format_version = 2", "format_version 2 is not known"),
    "no hosts": ('[[hosts]]\ncpu = "xeon-core"\ncores = 4\nmemory_gib = 8', "hosts = []", "hosts: give one at least"),
    "infinite": ("latency_us = 10", "latency_us = inf", r"links\[0\].latency_us: inf is not a finite"),
    "nan": ("memory_gib = 8", "memory_gib = nan", r"hosts\[0\].memory_gib: nan is not a finite"),
    "negative": (
        "latency_us = 10",
        "latency_us = -1",
        r"links\[0\].latency_us is -1, which cannot be - give 0 to 1e\+08",
    ),
    "weeks": ("latency_us = 10", "latency_us = 1e12", r"links\[0\].latency_us is 1e\+12, which cannot be - give 0 to"),
    "a byte a day": (
        "bandwidth_gb_s = 2",
        "bandwidth_gb_s = 1e-14",
        r"bandwidth_gb_s is 1e-14.* - give 1e-06 to 1e\+06",
    ),
    "huge lanes": (
        "latency_us = 10\nbandwidth_gb_s = 2",
        'model = "pcie4"\nlanes = 99999',
        r"lanes is 99999.*1 to 1024",
    ),
    "zero bandwidth": ("bandwidth_gb_s = 2", "bandwidth_gb_s = 0", r"links\[0\].bandwidth_gb_s"),
    "zero count": ("count = 2", "count = 0", r"devices\[0\].count"),
    "too many": ("count = 2", "count = 1000", "more than 256"),
    "huge": ("memory_gib = 8", "memory_gib = 1" + "0" * 400, r"memory_gib"),
    "no memory": ("memory_gib = 8", "memory_gib = 1e-300", "cpu:0 needs memory"),
    "unknown preset": ("V100", "V1000", "no device preset is named 'V1000' - did you mean V100"),
    "unknown host": ("count = 2", 'host = "a"', "no host is named 'a'"),
    "unknown device": ('"gpu:1"]', '"gpu:2"]', "no device or kind is named 'gpu:2'"),
    "unjoined pair": (', ["gpu:0", "gpu:1"]', "", "nothing joins gpu:0 to gpu:1 - add"),
    "unknown model": (
        "latency_us = 10\nbandwidth_gb_s = 2\nfloor_us = 11.5",
        'model = "paper-nvlnk-cpu-gpu"',
        "did you",
    ),
    "model and numbers": ("latency_us = 10", 'model = "paper-nvlink-cpu-gpu"', "brings its own numbers"),
    "two rates": ("latency_us = 10", "latency_us = 10\nus_per_byte = 1", "one of bandwidth_gb_s and us_per_byte"),
    "no latency": ("latency_us = 10\n", "", "give latency_us"),
    "placeholder": ("floor_us = 11.5", 'holds = ["{form}"]', "unknown placeholder {form} - did you mean from"),
    "format trick": ("floor_us = 11.5", 'holds = ["{}"]', "unknown placeholder"),
    "three sides": ('["cpu", "gpu"]', '["cpu", "gpu", "gpu"]', r"links\[0\].pairs\[0\]"),
    "control character": ('"xeon-core"', '"xeon\\u0007"', r"hosts\[0\].cpu: text must be printable"),
    "scope": ("floor_us = 11.5", 'scope = "hosts"', r"links\[0\].scope"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_content_is_named(case):
    """Each kind of bad content is one line that names the file and the key."""
    old, new, message = BAD[case]
    text = VALID.replace(old, new) if old else new
    assert text != VALID
    with pytest.raises(InputError, match=message) as caught:
        parse(text)
    assert str(caught.value).startswith("my.toml: ")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text():
    """Latin-1 and deep nesting are refused like any other content."""
    with pytest.raises(InputError, match="not UTF-8"):
        cluster_file.parse(f"# für zwei\n{VALID}".encode("latin-1"), "my.toml", "my.toml")
    with pytest.raises(InputError, match=r"too deeply|unknown key|nested"):
        parse("links = " + "[" * 100_000)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_named(encoding):
    """Editors write one before the first table, where TOML's reader says "Invalid statement (at line 1, column 1)"."""
    with pytest.raises(InputError, match=r"my\.toml: begins with a byte order mark \(BOM\) - save"):
        cluster_file.parse(VALID.encode(encoding), "my.toml", "my.toml")


def test_settings_are_usage_errors(tmp_path):
    """Read as a configuration of the program, the same mistakes end with exit code 2."""
    file = tmp_path / "pesto.toml"
    file.write_text("format_version = 'one'")
    with pytest.raises(UsageError, match=r"pesto\.toml: format_version: Expected `int`"):
        toml.load(file, cluster_file.File)


_lines = st.sampled_from(VALID.splitlines())
_texts = st.text(max_size=8).map(repr) | st.sampled_from(["[]", "[[]]", "{}", "1979-05-27"])
_values = st.one_of(st.integers(), st.floats(), st.booleans(), _texts)


@given(st.lists(_lines, max_size=20), st.lists(st.tuples(st.integers(0, 30), _values), max_size=4))
def test_shuffled_lines_and_odd_values(lines, edits):
    """Any mixture of known lines and wrong values is a cluster or a PestoError."""
    rows = VALID.splitlines() + lines
    for at, value in edits:
        key = rows[at % len(rows)].split("=")[0]
        rows[at % len(rows)] = f"{key}= {value}"
    survive("\n".join(rows).encode("utf-8", "surrogatepass"))


@given(st.integers(0, len(VALID)), st.integers(0, 40), st.binary(max_size=20))
def test_damaged_bytes(start, length, replacement):
    """Any part of the file replaced by any bytes is a cluster or a PestoError."""
    data = VALID.encode()
    survive(data[:start] + replacement + data[start + length :])


def survive(data):
    try:
        found = cluster_file.parse(data, "my.toml", "my.toml")
    except PestoError as e:
        assert str(e).isprintable()
    else:
        assert len(found.paths) == len(found.devices)


def test_example_in_the_docs_is_a_cluster():
    """The custom cluster of docs/guides/clusters.md loads: two hosts, three GPUs, network cards between."""
    text = (ROOT / "docs" / "guides" / "clusters.md").read_text(encoding="utf-8")
    found = parse(text.split("```toml\n")[1].split("```")[0])
    assert [d.preset for d in found.devices] == ["xeon-core", "epyc-core", "T4", "A100", "A100"]
    assert held(found, "gpu:0", "gpu:2") == {"nic left out", "nic right in"}
    assert held(found, "gpu:1", "gpu:2") == {"gpu:1>gpu:2"}
