"""Profiles: bound to their graph whatever its order, labelled op by op, and never applied to another device model."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pesto
from pesto.core.costs import GIVEN, MEASURED, MODELLED
from pesto.core.costs.analytical import model_costs
from pesto.core.costs.measured import (
    Noise,
    Profile,
    apply_profile,
    load_profile,
    parse_profile,
    save_profile,
    spread_quantiles,
)
from pesto.core.errors import Exit, FileError, InputError, MismatchError, PestoError
from pesto.core.graph import Graph
from pesto.inputs.cluster_file import load_cluster

NAN = float("nan")
CLUSTER = load_cluster("v100x2-nvlink")


def chain(order, cpu=True, last_bytes=4):
    """A chain A -> B -> C whose ops are listed in the given order of their places in the chain."""
    at = np.argsort(order)
    tensors = np.argsort(at[:2])
    return Graph(
        names=tuple("ABC"[i] for i in order), types=("A", "B", "C"), type_of=order, tensor_op=np.sort(at[:2]),
        tensor_bytes=np.array([4, last_bytes])[tensors], src=at[:2], dst=at[1:], tensor=np.argsort(tensors),
        control_src=[], control_dst=[], group=[-1] * 3, kinds=("cpu", "gpu"), runs_on=[[cpu, True]] * 3,
        param_bytes=[0] * 3, flops=[0.0] * 3, moved_bytes=[0] * 3, launches=[True] * 3, given_s=np.zeros((3, 0)),
        source="chain",
    )  # fmt: skip


GRAPH = chain([0, 1, 2])
NOISE = Noise(
    runs=120, refused=20, others_cores=0.03, busy=(("sshd", 0.02),), excess=0.25, clocks="SM clock 1380 of 1530 MHz"
)
BASE = Profile(
    fingerprint=GRAPH.fingerprint(), kind="gpu", device="a GPU", iterations=100, seconds=[1e-3, NAN, 3e-3],
    spread=[0.01, NAN, 0.02], raw_spread=[0.1, NAN, 0.2], source="chain",
)  # fmt: skip
FILE = {
    "format": "pesto-profile", "format_version": 1, "fingerprint": BASE.fingerprint, "kind": "gpu", "device": "a GPU",
    "iterations": 100, "source": "chain", "seconds": [1e-3, None, 3e-3], "spread": [0.01, None, 0.02],
    "raw_spread": [0.1, None, 0.2],
}  # fmt: skip
QUIET = replace(BASE, low=[0.9e-3, NAN, 2.3e-3], median=[0.95e-3, NAN, 2.9e-3], mean=[1.1e-3, NAN, 3.1e-3], noise=NOISE)
FULL = FILE | {
    "format_version": 2, "low": [0.9e-3, None, 2.3e-3], "median": [0.95e-3, None, 2.9e-3],
    "mean": [1.1e-3, None, 3.1e-3], "launch": None,
    "noise": {"runs": 120, "refused": 20, "others_cores": 0.03, "busy": [["sshd", 0.02]], "kept": False,
              "excess": 0.25, "clocks": "SM clock 1380 of 1530 MHz"},
}  # fmt: skip


def test_launches_are_kept_in_the_file_and_hold_where_the_profile_does(tmp_path):
    """Seconds by op in whatever order the graph lists them; on GPUs alone; none of a profile without."""
    profile = replace(QUIET, launch=[4e-6, NAN, 6e-6])
    save_profile(tmp_path / "p.json", profile, GRAPH)
    other = chain([2, 0, 1])
    found = load_profile(tmp_path / "p.json", other)
    assert np.array_equal(found.launch, [6e-6, 4e-6, NAN], equal_nan=True)
    costs = apply_profile(GRAPH, CLUSTER, profile, model_costs(GRAPH, CLUSTER))
    gpu = np.array([device.kind == "gpu" for device in CLUSTER.devices])
    assert np.array_equal(costs.launch_s[:, gpu], np.array([[4e-6] * 2, [NAN] * 2, [6e-6] * 2]), equal_nan=True)
    assert np.isnan(costs.launch_s[:, ~gpu]).all()
    assert apply_profile(GRAPH, CLUSTER, QUIET, model_costs(GRAPH, CLUSTER)).launch_s is None


def test_measured_times_replace_modelled_ones():
    """Traced ops take the profile's time on both GPUs, the untraced op and the CPU keep the model's 5 and 2 us."""
    found = apply_profile(GRAPH, CLUSTER, BASE, model_costs(GRAPH, CLUSTER))
    assert found.compute_s.tolist() == [[2e-6, 1e-3, 1e-3], [2e-6, 5e-6, 5e-6], [2e-6, 3e-3, 3e-3]]
    # Ops that GPUs can run are placed there, so the modelled CPU times do not count.
    assert found.basis == "mixed: 2 of 3 ops measured, 1 modelled"
    expected = "2 of 3 ops by chain (gpu, a GPU, 100 iterations), else kernels and roofline of xeon-core, V100"
    assert found.source == expected


def test_given_times_are_not_called_measured():
    """Of three ops the first and the last are traced and the graph gives a time for the second."""
    graph = replace(GRAPH, given_kinds=("gpu",), given_s=[[4e-3], [2e-3], [NAN]])
    found = apply_profile(graph, CLUSTER, replace(BASE, fingerprint=graph.fingerprint()), model_costs(graph, CLUSTER))
    assert found.compute_s[:, 1].tolist() == [1e-3, 2e-3, 3e-3]
    assert found.origin.tolist() == [MEASURED, GIVEN, MEASURED]
    assert found.basis == "mixed: 2 of 3 ops measured, 1 given"
    assert found.source.endswith(
        " iterations), else kernels and roofline of xeon-core, V100; times of 2 of 3 ops given by the graph"
    )


def test_label_is_kept_per_op():
    """Ops that run on GPUs alone are measured where they were traced."""
    graph = chain([0, 1, 2], cpu=False)
    profile = replace(BASE, fingerprint=graph.fingerprint())
    found = apply_profile(graph, CLUSTER, profile, model_costs(graph, CLUSTER))
    assert found.origin.tolist() == [MEASURED, MODELLED, MEASURED]
    assert np.isnan(found.compute_s[:, 0]).all()


def test_speed_scales_measured_times():
    """A device of twice the speed takes half the measured time."""
    fast = replace(CLUSTER, devices=(*CLUSTER.devices[:2], replace(CLUSTER.devices[2], speed=2.0)))
    assert apply_profile(GRAPH, fast, BASE, model_costs(GRAPH, fast)).compute_s[0, 2] == 0.5e-3


def test_cpu_profile_speaks_for_cpus_alone():
    """A profile of a CPU sets the CPU's times and leaves the GPUs modelled."""
    found = apply_profile(GRAPH, CLUSTER, replace(BASE, kind="cpu", device="some CPU"), model_costs(GRAPH, CLUSTER))
    assert found.compute_s[0].tolist() == [1e-3, 5e-6, 5e-6]
    assert found.basis == "modelled"


def test_profile_of_another_gpu_model_is_not_used():
    """Times of an H200 say nothing of a V100; times of a Tesla V100 do."""
    model = model_costs(GRAPH, CLUSTER)
    other = apply_profile(GRAPH, CLUSTER, replace(BASE, device="NVIDIA H200"), model)
    assert np.array_equal(other.compute_s, model.compute_s)
    assert other.source.startswith("0 of 3 ops by chain")
    same = apply_profile(GRAPH, CLUSTER, replace(BASE, device="Tesla V100-SXM2-16GB"), model)
    assert same.compute_s[0, 1] == 1e-3


def test_profile_of_another_graph_is_refused(tmp_path):
    """Another fingerprint ends with exit code 9 on use, on save and on load."""
    other = chain([0, 1, 2], last_bytes=8)
    save_profile(tmp_path / "p.json", BASE, GRAPH)
    for act in (
        lambda: apply_profile(other, CLUSTER, BASE, model_costs(other, CLUSTER)),
        lambda: save_profile(tmp_path / "q.json", BASE, other),
        lambda: load_profile(tmp_path / "p.json", other),
    ):
        with pytest.raises(MismatchError, match=r"this graph is .* - profile this one") as caught:
            act()
        assert caught.value.exit_code == Exit.MISMATCH
    assert not (tmp_path / "q.json").exists()


@pytest.mark.parametrize("profile", [BASE, QUIET])
def test_round_trip(tmp_path, profile):
    """What is saved is loaded again, NaN included, and saved again gives the same bytes."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    save_profile(one, profile, GRAPH)
    found = load_profile(one, GRAPH)
    for name in ("seconds", "spread", "raw_spread", "times"):
        assert np.array_equal(getattr(found, name), getattr(profile, name), equal_nan=True)
    assert (found.kind, found.device, found.iterations, found.source) == ("gpu", "a GPU", 100, "chain")
    assert (found.noise, found.low is None) == (profile.noise, profile.low is None)
    save_profile(two, found, GRAPH)
    assert one.read_bytes() == two.read_bytes()
    want = (
        FULL
        if profile is QUIET
        else FILE | {"format_version": 2, "low": None, "median": None, "mean": None, "launch": None, "noise": None}
    )
    assert json.loads(one.read_text()) == want


def test_a_file_of_version_1_gives_its_trimmed_means():
    """A plan that was made from it is the same as before; that nothing says how noisy it was, is said."""
    found = parse_profile(json.dumps(FILE).encode(), GRAPH, "p.json")
    assert (found.low, found.noise) == (None, None)
    costs = apply_profile(GRAPH, CLUSTER, found, model_costs(GRAPH, CLUSTER))
    assert costs.compute_s[:, 1].tolist() == [1e-3, 5e-6, 3e-3]
    assert costs.source.startswith("2 of 3 ops by chain (gpu, a GPU, 100 iterations), else")
    assert costs.noise == "profile: how much was going on meanwhile, it does not say"


def test_plans_rest_on_lower_deciles_and_say_how_noisy_they_are():
    """The deciles are the costs; the plan's own line has the share, and `noise` all of it."""
    costs = apply_profile(GRAPH, CLUSTER, QUIET, model_costs(GRAPH, CLUSTER))
    assert costs.compute_s[:, 1].tolist() == [0.9e-3, 5e-6, 2.3e-3]
    assert "(gpu, a GPU, 100 iterations, noise 25.0%), else" in costs.source
    assert costs.noise == (
        "profile: lower deciles of 100 runs, 20 more were disturbed and left out; other programs used 0.03 cores "
        "meanwhile; means are 25.0% longer; SM clock 1380 of 1530 MHz"
    )


def test_what_was_disturbed_and_kept_is_labelled():
    """In the plan's line and in `noise`, with who was busy; and where nothing is known, that."""
    kept = replace(NOISE, kept=True, refused=0, others_cores=1.4, busy=(("cc1plus", 1.2), ("ld", 0.2)), clocks="")
    costs = apply_profile(GRAPH, CLUSTER, replace(QUIET, noise=kept), model_costs(GRAPH, CLUSTER))
    assert "noise 25.0%, disturbed runs kept)" in costs.source
    assert costs.noise == (
        "profile: DISTURBED RUNS KEPT, lower deciles of 120 runs; other programs used 1.40 cores meanwhile "
        "(cc1plus 1.20, ld 0.20); means are 25.0% longer"
    )
    assert "what other programs used is not known" in str(replace(NOISE, others_cores=None, busy=()))


def test_a_profile_that_times_nothing_here_says_nothing_of_its_noise():
    """Times of another GPU are not used, so how good they are is nothing to say."""
    assert apply_profile(GRAPH, CLUSTER, replace(QUIET, device="NVIDIA H200"), model_costs(GRAPH, CLUSTER)).said == ""


@pytest.mark.parametrize(
    "change",
    [{"excess": -0.1}, {"excess": math.inf}, {"excess": NAN}, {"others_cores": -1.0}, {"busy": (("x", NAN),)},
     {"runs": 0, "refused": 0}, {"refused": 120}, {"refused": -1}],
)  # fmt: skip
def test_noise_that_cannot_be_is_refused(change):
    """Negative or endless, or no run that counts."""
    with pytest.raises(InputError, match="noise must be finite"):
        replace(NOISE, **change)


@pytest.mark.parametrize("order", [[2, 1, 0], [1, 2, 0], [2, 0, 1]])
def test_times_follow_ops_that_are_listed_in_another_order(tmp_path, order):
    """Graphs with one fingerprint may list their ops differently; each op keeps its own time."""
    other = chain(order)
    assert other.fingerprint() == GRAPH.fingerprint()
    save_profile(tmp_path / "p.json", BASE, GRAPH)
    found = load_profile(tmp_path / "p.json", other)
    assert np.array_equal(found.seconds, BASE.seconds[order], equal_nan=True)


def test_mismatched_arrays_are_refused():
    """Lengths and signs of a profile are checked when it is made, and its size when it is used."""
    with pytest.raises(InputError, match="spread has shape"):
        replace(BASE, spread=[0.1])
    with pytest.raises(InputError, match=r"seconds\[1\] = -1"):
        replace(BASE, seconds=[1, -1, 1])
    with pytest.raises(InputError, match="at least one iteration"):
        replace(BASE, iterations=0)
    short = replace(BASE, seconds=[1], spread=[0], raw_spread=[0])
    with pytest.raises(InputError, match="a profile of 1 ops"):
        apply_profile(GRAPH, CLUSTER, short, model_costs(GRAPH, CLUSTER))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "pesto-plan"}, "pesto-profile"),
        ({"format_version": 3}, "format_version 3 is not known, only 1 to 2 - update pesto"),
        ({"low": [1.0]}, "low has 1 entries for 3 ops"),
        ({"noise": FULL["noise"] | {"excess": -1.0}}, "noise must be finite"),
        ({"noise": FULL["noise"] | {"runs": "many"}}, "runs"),
        ({"seconds": [1.0]}, "seconds has 1 entries for 3 ops"),
        ({"seconds": [1.0, "2", 3.0]}, r"seconds\[1\]|seconds\[...\]"),
        ({"spread": [-1.0, 0.0, 0.0]}, "spread"),
        ({"iterations": 0}, "iterations"),
        ({"fingerprint": 5}, "fingerprint"),
    ],
)
def test_bad_files_are_refused(change, message):
    """Each wrong field of a file is named."""
    with pytest.raises(InputError, match=message):
        parse_profile(json.dumps(FILE | change).encode(), GRAPH, "p.json")


def test_missing_file(tmp_path):
    """A file that is not there is an input/output error."""
    with pytest.raises(FileError):
        load_profile(tmp_path / "none.json", GRAPH)


def test_spread_quantiles_by_hand():
    """Of spreads 0.1, 0.2, 0.3, 0.9 the last is of a 1 us op and left out: median 0.2, maximum 0.3."""
    spread = [0.1, 0.3, 0.2, 0.9]
    profile = replace(BASE, seconds=[1e-3, 1e-4, 1e-5, 1e-6], spread=spread, raw_spread=[2 * x for x in spread])
    assert spread_quantiles(profile, [0, 0.5, 1]) == pytest.approx([0.1, 0.2, 0.3])
    assert spread_quantiles(profile, [0.5], raw=True) == pytest.approx([0.4])
    assert spread_quantiles(profile, [1], least_s=0) == pytest.approx([0.9])
    assert spread_quantiles(profile, [0.5], least_s=1) is None


_key = st.sampled_from(sorted(FULL))
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(_key, _json, max_size=3), st.sets(_key, max_size=1))
def test_odd_fields(change, dropped):
    """A file with any fields replaced or missing is a profile or a PestoError."""
    survive(json.dumps({k: v for k, v in (FULL | change).items() if k not in dropped}).encode())


@given(st.integers(0, 640), st.integers(0, 60), st.binary(max_size=12))
def test_damaged_bytes_of_a_profile(start, length, replacement):
    """A file with any part replaced by any bytes is a profile or a PestoError."""
    data = json.dumps(FULL).encode()
    survive(data[:start] + replacement + data[start + length :])


def survive(data):
    try:
        found = parse_profile(data, GRAPH, "p.json")
    except PestoError as e:
        assert "\n" not in str(e)
    else:
        assert len(found.seconds) == 3


def test_python_is_not_warned_of_noise(caplog):
    """The plan says it in its line on costs; a warning at every solve would say no more."""
    plan = pesto.solve(GRAPH, cluster=CLUSTER, costs=QUIET, time_limit_s=0, solver="list")
    assert "noise 25.0%" in plan.provenance.costs
    assert "profile" not in caplog.text
