"""Transfers between logical CPUs: chains that cross as often as they say, and seconds from a clock that is told."""

import numpy as np
import pytest

from pesto.core.costs.calibration import calibrate
from pesto.core.costs.disturbance import DisturbanceWatch
from pesto.core.errors import InputError, NothingFoundError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.run import transfers  # noqa: E402  # after the quiet load
from pesto.tf.run.transfers import FEW, MANY, DevicePair, measure_transfers, tf_device  # noqa: E402
from pesto.tf.session_config import disable_optimizers  # noqa: E402

PAIR = DevicePair(one="cpu:0", other="cpu:1", cpus=2)
UNSEEN = DisturbanceWatch(look=lambda: None)
SIZES = (4, 16, 64, 256, 1024, 4096)


def chains(clock=lambda: 0.0):
    config = disable_optimizers(v1.ConfigProto(device_count={"CPU": PAIR.cpus}))
    session = v1.Session(graph=tf.Graph(), config=config)
    with session.graph.as_default():
        return transfers._TransferChains(PAIR, session, clock)


@pytest.fixture
def short(monkeypatch):
    """Chains that are built in a moment."""
    monkeypatch.setattr(transfers, "MANY", 20)


@pytest.fixture(scope="module")
def made():
    return chains()


def sends(made, op):
    """How many tensors each device sends in a run, and how many of them are no more than a word that all is done."""
    options, found = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    made.session.run(made.fill, {made.size: [4]})
    made.session.run(op, options=options, run_metadata=found)
    counted = {}
    for graph in found.partition_graphs:
        from_here = [node for node in graph.node if node.op in ("_Send", "_HostSend")]
        device = from_here[0].device if from_here else ""
        counted[device.rpartition(":")[2]] = len(from_here)
    return counted


def test_a_chain_crosses_as_often_as_it_says(made):
    """One way: a tensor there each time and a word back before the next; both ways: twice that."""
    for few, hops in ((False, MANY), (True, FEW)):
        assert sends(made, made.chains[few]["there"]) == {"0": hops, "1": hops - 1}
        assert sends(made, made.chains[few]["back"]) == {"1": hops, "0": hops - 1}
        assert sends(made, made.chains[few]["answers"]) == {"0": hops, "1": hops - 1}
        # And a last word to where the end of both is waited for.
        assert sends(made, made.chains[few]["both"]) == {"0": 2 * hops - 1, "1": 2 * hops}
        assert sends(made, made.chains[few]["twice there"])["0"] == 2 * hops
        assert not any(sends(made, made.chains[few]["stays"]).values())


def test_tensors_have_the_size_that_is_measured(made):
    """64 bytes are 16 floats, held by both devices, each its own."""
    made.session.run(made.fill, {made.size: [16]})
    for device, held in made.values.items():
        assert made.session.run(held).nbytes == 64
        assert held.device == device


def test_seconds_of_a_transfer_by_hand():
    """Links of 10 us, those that stay 2 and 4, answers 5: an answer is (5 - 3) / 2 = 1, so 7 there and 5 back."""
    took = {"there": 10, "back": 10, "both": 12, "twice there": 11, "twice back": 13,
            "stays": 2, "stays beyond": 4, "answers": 5}  # fmt: skip
    taken = np.array([took[kind] for kind in transfers._KINDS], dtype=float)[None, None, :, None] * np.ones(
        (2, 6, 1, 3)
    )
    found = transfers._compute_transfers(taken, np.zeros(6, dtype=bool))
    assert found.shape == (5, 6, 6)
    assert found[:, 0, 0].tolist() == [10 - 2 - 1, 10 - 4 - 1, 12 - 3 - 1, 11 - 2 - 1, 13 - 4 - 1]
    # Chains of few links are held against others of few; what is below nothing is nothing.
    few = np.array([False] * 5 + [True])
    taken[:, 5, 5:] = 20.0
    again = transfers._compute_transfers(taken, few)
    assert again[0, :, 0].tolist() == [7.0] * 5 + [0.0]


def test_samples_of_one_pass_stay_side_by_side():
    """The first half of the samples is that of the first passes: what settles is told by time."""
    taken = np.zeros((2, 6, 8, 3))
    taken[1, :, 0] = 1.0
    assert transfers._compute_transfers(taken, np.zeros(6, dtype=bool))[0, 0].tolist() == [0, 0, 0, 1, 1, 1]


def test_large_transfers_go_in_short_chains(short):
    """By the clock: chains of twenty take 0.2 s by transfers of 10 ms, and by those of 0.5 ms less than LONG_S."""
    now = [0.0]

    def ticking(step):
        def clock():
            now[0] += step
            return now[0]

        return clock

    assert chains(ticking(0.05)).few(64)
    assert not chains(ticking(0.0025)).few(64)


def test_logical_cpus_are_measured_both_ways(short):
    """Every size has its samples, one way and back, with what went on at once; that they settle nobody promises."""
    there, back, runs = measure_transfers(PAIR, UNSEEN, 2, sizes=SIZES)
    assert (there.source, there.target, back.source, back.target) == ("cpu:0", "cpu:1", "cpu:1", "cpu:0")
    for samples in (there, back):
        assert samples.alone.shape == samples.both.shape == samples.twice.shape == (6, 2 * transfers.REPEATS)
    assert (there.both == back.both).all()
    assert (runs.runs, runs.refused, runs.others) == (2, 0, None)


def test_a_clock_that_says_so_gives_its_seconds(short, monkeypatch):
    """With 3 us a link one way, 4 back, and nothing for what stays: the whole way to lines and a bandwidth."""
    us = {"there": 3.0, "back": 4.0, "both": 4.0, "twice there": 3.0, "twice back": 4.0}
    took = [us.get(kind, 0.0) * 1e-6 for kind in transfers._KINDS]

    def row(self, size, few):
        del few
        return np.array(took)[:, None] * np.ones(3) * (1 + size / 1e4)

    monkeypatch.setattr(transfers._TransferChains, "row", row)
    there, back, _ = measure_transfers(PAIR, UNSEEN, 2, sizes=SIZES)
    found = calibrate(there, back)
    assert found.latency_s == pytest.approx(3e-6, rel=1e-3) and found.error < 1e-3
    assert calibrate(back, there).latency_s == pytest.approx(4e-6, rel=1e-3)


def test_a_device_that_is_not_there_is_one_line(short):
    """TensorFlow's own words, shortened, and what to do."""
    with pytest.raises(InputError, match=r"cpu:0 and gpu:7: TensorFlow cannot send .* - name others") as caught:
        measure_transfers(DevicePair(one="cpu:0", other="gpu:7", cpus=1), UNSEEN, 2, sizes=SIZES)
    assert "\n" not in str(caught.value)


def test_names_are_tensorflows():
    """gpu:1 is its second GPU."""
    assert (tf_device("gpu:1"), tf_device("cpu:0")) == ("/device:GPU:1", "/device:CPU:0")
    assert transfers.visible_gpus() == [] or all(transfers.visible_gpus())
    assert NothingFoundError.exit_code == 5
