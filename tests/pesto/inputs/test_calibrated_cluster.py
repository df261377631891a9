"""Calibrated clusters: measured or fitted links stand in the file that is written, and bad input is one line."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from cluster_files import HOST, parse

from pesto.cli.main import pesto
from pesto.core.costs.calibration import SIZES, Samples
from pesto.core.costs.disturbance import DisturbanceWatch, OtherLoad, WatchedRuns
from pesto.core.costs.network import transfer_s
from pesto.core.errors import Exit, FileError, InputError, NothingFoundError, UsageError
from pesto.inputs import calibrated_cluster
from pesto.inputs.calibrated_cluster import calibrate_cluster, check_devices_present, cluster_from_samples
from pesto.inputs.cluster_file import load_cluster
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

load_tensorflow()

from pesto.tf.run import transfers  # noqa: E402  # after the quiet load

K = np.array(SIZES)
BUSY = OtherLoad(seconds=4.0, cores=1.25, who=(("cc1plus", 1.0), ("ld", 0.25)))
QUIET = OtherLoad(seconds=4.0, cores=0.02, who=())


def typed(*words):
    done = CliRunner().invoke(pesto, ["calibrate", *map(str, words)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done


@pytest.fixture
def machine(monkeypatch):
    """A machine on which transfers take what is said: us, GB/s, and how many times as long two at once take."""
    asked = []

    def make(us=20.0, gb_s=10.0, *, together=1.0, gpus=(), others=QUIET, wobble=(1.0,), slower=1.0):
        left = list(wobble)

        def measure(pair, watch, passes):
            asked.append((pair.one, pair.other, pair.cpus, passes, watch.keep))
            seconds = us * 1e-6 + (K / (gb_s * 1e9) if gb_s else 0.0 * K)
            alone = np.repeat(seconds[:, None], 2 * passes, axis=1)
            alone *= slower ** len(asked)
            alone[:, passes:] *= left.pop(0) if len(left) > 1 else left[0]
            ways = [
                Samples(source=a, target=b, sizes=K, alone=alone, both=alone * together, twice=alone * together)
                for a, b in ((pair.one, pair.other), (pair.other, pair.one))
            ]
            return *ways, WatchedRuns(samples=[], runs=passes, others=others)

        monkeypatch.setattr(transfers, "measure_transfers", measure)
        monkeypatch.setattr(transfers, "visible_gpus", lambda: list(gpus))
        return asked

    return make


def test_types_of_transfers_have_their_line(machine, tmp_path):
    """Pesto, Fig 4b: both ways between CPUs are one type, of 20 us and 10 GB/s with R² 1, on the page and in JSON."""
    machine()
    page = " ".join(typed("-q", "-o", tmp_path / "mine.toml").stdout.split())
    assert "cpu to cpu: 20 µs and 0.0001 µs a byte, R² 1.000" in page
    types = json.loads(typed("-q", "--json", "-o", tmp_path / "mine.toml").stdout)["types"]
    assert list(types) == ["cpu to cpu"]
    assert types["cpu to cpu"]["r2"] == pytest.approx(1.0)


def test_measured_links_are_in_the_file(machine, tmp_path):
    """20 us and 10 GB/s of two logical CPUs that share each way; the file is a cluster with such paths."""
    asked = machine(together=2.0)
    typed("-q", "-o", tmp_path / "mine.toml")
    found = load_cluster(str(tmp_path / "mine.toml"))
    assert asked == [("cpu:0", "cpu:1", 2, 8, False)]
    assert (found.name, [d.preset for d in found.devices]) == ("cpux2-calibrated", ["xeon-core"] * 2)
    assert transfer_s(found.paths[0][1], [0, 10**7]) == pytest.approx([20e-6, 1020e-6], rel=1e-4)
    assert found.links == ("cpu:0<>cpu:1",)
    text = (tmp_path / "mine.toml").read_text()
    assert text.startswith("# Links measured by pesto calibrate") and "other programs used 0.02 cores" in text
    assert found.paths[0][1].source.startswith("measured: 20.00 µs, 10 GB/s; 1 line")


@pytest.mark.parametrize(("together", "gb_s", "links"), [(1.0, 10, ()), (3.0, 0, ()), (2.0, 10, ("cpu:0<>cpu:1",))])
def test_what_is_shared_is_held(machine, together, gb_s, links):
    """Nothing where two at once take as long as one, or bytes are free."""
    machine(together=together, gb_s=gb_s)
    assert calibrate_cluster(None, 8, DisturbanceWatch(), lambda _: None).cluster.links == links


def test_all_devices_of_a_cluster_are_measured(machine, tmp_path):
    """Two GPUs and their host: three pairs, each heard of both ways; the cluster's devices stay as they are."""
    asked, heard = machine(gpus=["Tesla V100-SXM2-16GB"] * 2), []
    made = calibrate_cluster("v100x2-pcie", 8, DisturbanceWatch(), heard.append)
    assert [(a, b, cpus) for a, b, cpus, *_ in asked] == [
        ("cpu:0", "gpu:0", 1),
        ("cpu:0", "gpu:1", 1),
        ("gpu:0", "gpu:1", 1),
    ]
    assert len(heard) == len(made.found) == 6 and heard[0].startswith("cpu:0 to gpu:0: 20.00 µs")
    assert made.cluster.devices == load_cluster("v100x2-pcie").devices


def test_a_plan_is_made_on_what_was_measured(machine, tmp_path, make_graph):
    """Two ops of 1 ms on each side of a transfer of 1 MB: the plan's ticks are those of the piecewise line."""
    machine(us=3.0, gb_s=20.0)
    typed("-q", "-o", tmp_path / "mine.toml")
    ops = [
        {"name": "a", "bytes": 10**6, "s": 1e-3},
        *({"name": n, "inputs": ["a"], "bytes": 8, "s": 1e-3} for n in "bc"),
    ]
    plan = api.solve(make_graph(ops), cluster=tmp_path / "mine.toml", time_limit_s=0, workers=1)
    assert plan.makespan_s == pytest.approx(2e-3 + 3e-6 + 1e6 / 20e9, rel=1e-4)


def test_disturbed_runs_that_were_kept_are_labelled(machine, tmp_path):
    """In the file's head, in each path's source and in the object, with who was busy."""
    asked = machine(others=BUSY)
    said = json.loads(typed("--keep-disturbed", "--json", "-q", "-o", tmp_path / "mine.toml").stdout)
    assert asked[0][-1] and said["kept_disturbed"] and said["others_cores"] == 1.25
    assert said["busy"] == [["cc1plus", 1.0], ["ld", 0.25]]
    assert [(one["from"], one["to"]) for one in said["links"]] == [("cpu:0", "cpu:1"), ("cpu:1", "cpu:0")]
    assert len(said["links"][0]["held_out"]) == 6 and said["links"][0]["error"] < 1e-4
    want = "other programs used 1.25 cores (cc1plus 1.00, ld 0.25), and disturbed runs were kept"
    assert want in (tmp_path / "mine.toml").read_text().splitlines()[1]
    assert want in load_cluster(str(tmp_path / "mine.toml")).paths[0][1].source


def test_samples_that_do_not_settle_are_measured_on(machine):
    """Of eight passes the second half takes twice as long, of eight more it does not: together they settle."""
    asked = machine(wobble=(2.0, 1.0))
    found = calibrate_cluster(None, 8, DisturbanceWatch(), lambda _: None).found
    assert [passes for *_, passes, _ in asked] == [8, 8]
    assert found[0].samples == 32 and found[0].latency_s == pytest.approx(20e-6)


def test_what_never_settles_ends_with_who_was_busy(machine, tmp_path):
    """Exit code 5 after four times as many passes; no file."""
    asked = machine(wobble=(2.0,), slower=4.0, others=BUSY)
    told = r"% apart .* will do; other programs used 1\.25 cores \(cc1plus 1\.00, ld 0\.25\) - measure on a machine"
    with pytest.raises(NothingFoundError, match=told) as caught:
        typed("-o", tmp_path / "mine.toml")
    assert caught.value.exit_code == Exit.NOTHING and "--keep" not in str(caught.value)
    assert [passes for *_, passes, _ in asked] == [8, 8, 16] and not (tmp_path / "mine.toml").exists()


def test_a_machine_too_busy_names_the_option(monkeypatch, tmp_path):
    """What `watched` says, with what keeps such runs."""

    def measure(*_):
        raise NothingFoundError(
            "other programs used 1.57 of 2 cores (make 1.5), so - measure ..., or have disturbed runs kept"
        )

    monkeypatch.setattr(transfers, "measure_transfers", measure)
    with pytest.raises(NothingFoundError, match=r"\(--keep-disturbed\)$"):
        typed("-o", tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("cluster", "gpus", "message"),
    [
        ("v100x2-pcie", [], "gpu:0 of cluster v100x2-pcie is not there, TensorFlow sees 0 GPUs here - name a cluster"),
        ("v100x4", ["Tesla V100"] * 2, "gpu:2 of cluster v100x4 is not there, TensorFlow sees 2 GPUs"),
        ("v100x2-pcie", ["NVIDIA H200"] * 2, "gpu:0 of cluster v100x2-pcie is a V100, here it is a NVIDIA H200"),
        ("v100x4x2-25gbe", ["Tesla V100"] * 8, "has one device, or several hosts"),
    ],
)
def test_a_device_that_is_not_there_is_refused(cluster, gpus, message):
    """Before anything is measured, with what to do."""
    with pytest.raises(InputError, match=message):
        check_devices_present(load_cluster(cluster), gpus)
    check_devices_present(load_cluster("v100x2-pcie"), ["a GPU of no known name"] * 2)


def test_a_device_that_a_file_describes_alone_may_be_any():
    """Nothing says that "mine" is no V100."""
    rates = 'name = "mine"\npeak_tflops = {fp32 = 14}\nmemory_gb_s = 900\nsms = 80\nclock_ghz = 1.4\nmemory_gib = 16\n'
    link = '[[links]]\npairs = [["cpu", "gpu"]]\nmodel = "pcie3"\n'
    described = parse(f"{HOST}[[devices]]\n{rates}{link}")
    check_devices_present(described, ["Tesla V100-PCIE-16GB"])


def test_a_device_that_is_neither_cpu_nor_gpu_is_refused():
    """TensorFlow's name of it is not known."""
    found = load_cluster("cpux2")
    odd = replace(found, devices=(found.devices[0], replace(found.devices[1], name="tpu:0", kind="tpu")))
    with pytest.raises(InputError, match="tpu:0 is neither a CPU nor a GPU"):
        check_devices_present(odd, [])


def test_gpus_without_a_cluster_are_refused(machine):
    """Nothing says how much memory they have, or what else a cluster says."""
    machine(gpus=["Tesla V100"])
    with pytest.raises(UsageError, match=r"TensorFlow sees 1 GPUs, .* - give a cluster that has them"):
        calibrate_cluster(None, 8, DisturbanceWatch(), lambda _: None)


def table(us=5.0, gb_s=10.0, pair=("gpu:0", "gpu:1"), repeats=4):
    rows = [f"{pair[0]},{pair[1]},{size},{us * 1e-6 + size / gb_s / 1e9!r}" for size in SIZES for _ in range(repeats)]
    return "\n".join(["from,to,bytes,seconds", *rows, ""])


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "samples.csv").write_text(text)
        return tmp_path / "samples.csv"

    return write


def test_samples_of_others_are_fitted(written, tmp_path):
    """A pair that has samples gets their time and keeps its links; all else stays."""
    preset = load_cluster("v100x2-pcie")
    typed("--cluster", "v100x2-pcie", "--samples", written(table()), "-o", tmp_path / "mine.toml")
    found = load_cluster(str(tmp_path / "mine.toml"))
    assert transfer_s(found.paths[1][2], 10**7) == pytest.approx(1005e-6, rel=1e-4)
    assert [found.links[k] for k in found.paths[1][2].links] == [preset.links[k] for k in preset.paths[1][2].links]
    assert found.paths[2][1].cost == preset.paths[2][1].cost and found.devices == preset.devices
    assert found.paths[1][2].source.startswith("fitted to samples of samples.csv: 5.00 µs, 10 GB/s")


def test_a_size_with_more_samples_than_others_keeps_as_many(written):
    """The first of them."""
    more = table() + f"gpu:0,gpu:1,{SIZES[0]},1.0\n"
    assert cluster_from_samples("v100x2-pcie", written(more)).found[0].samples == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not begin with from,to,bytes,seconds"),
        ("a,b\n1,2\n", "does not begin with"),
        ("from,to,bytes,seconds\n", "no samples - write some rows"),
        ("from,to,bytes,seconds\ngpu:0,gpu:1,4\n", "row 2 is no from,to,bytes,seconds: gpu:0,gpu:1,4 - correct"),
        ("from,to,bytes,seconds\ngpu:0,gpu:1,4,fast\n", "sample in row 2 is no from,to"),
        ("from,to,bytes,seconds\ngpu:0,gpu:7,4,1e-6\n", "row 2: no device is named gpu:7 - did you mean gpu:"),
        ("from,to,bytes,seconds\ngpu:0,gpu:0,4,1e-6\n", "row 2: from gpu:0 to itself"),
        ("from,to,bytes,seconds\ngpu:0,gpu:1,4,-1e-6\n", "row 2: 4 bytes in -1e-6 s cannot be - leave it out"),
        ("from,to,bytes,seconds\ngpu:0,gpu:1,4,nan\n", "row 2: 4 bytes in nan s cannot be"),
        ("from,to,bytes,seconds\ngpu:0,gpu:1,4,inf\n", "row 2: 4 bytes in inf s cannot be"),
        ("from,to,bytes,seconds\ngpu:0,gpu:1,-4,1e-6\n", "row 2: -4 bytes in 1e-6 s cannot be"),
        ("from,to,bytes,seconds\ngpu:0,gpu:1,4,1e-6\n", "1 sizes are too few"),
        ('from,to,bytes,seconds\n"gpu:0', "no CSV in UTF-8"),
        (table(repeats=1), "measure each twice or more"),
        (table(us=0.0, gb_s=1e30), "take no time that can be told from none|cannot be"),
    ],
)  # fmt: skip
def test_samples_that_cannot_be_are_named(written, text, message):
    """One line with the row and a remedy."""
    with pytest.raises((InputError, NothingFoundError), match=message) as caught:
        cluster_from_samples("v100x2-pcie", written(text))
    assert "\n" not in str(caught.value) and " - " in str(caught.value)


def test_too_many_samples_are_refused(written, monkeypatch):
    """Before any is looked at."""
    monkeypatch.setattr(calibrated_cluster, "MOST_SAMPLES", 3)
    with pytest.raises(InputError, match="more than 3 samples"):
        cluster_from_samples("v100x2-pcie", written(table()))


def test_options_and_outputs_are_checked_first(machine, written, tmp_path):
    """Nothing is measured for a file that cannot be written, or samples of unknown devices."""
    asked = machine()
    with pytest.raises(FileError, match="cannot write"):
        typed("-o", tmp_path / "none" / "mine.toml")
    with pytest.raises(UsageError, match="give the --cluster that they were measured on"):
        typed("--samples", written(table()))
    with pytest.raises(UsageError, match="named twice"):
        typed("--cluster", "v100x2-pcie", "--samples", written(table()), "-o", tmp_path / "samples.csv")
    assert asked == []
