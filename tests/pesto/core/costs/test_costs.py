"""Modelled costs: the roofline by hand, what the graph gives, where an op cannot run, and plausible whole steps."""

from dataclasses import replace

import numpy as np
import pytest

from pesto.core.costs import GIVEN, MEASURED, MODELLED, Costs
from pesto.core.costs.analytical import model_costs, roofline_s
from pesto.core.costs.presets import PRESETS, preset, preset_named_in
from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.inputs.cluster_file import load_cluster

NAN = float("nan")
GPU, BOTH, CPU = (False, True), (True, True), (True, False)
ENTRIES = ("flops", "moved_bytes", "launches", "runs_on", "given_s")


def make(rows, given_kinds=()):
    """A graph without edges from rows of (flops, bytes, launches, runs on (cpu, gpu), times given)."""
    n = len(rows)
    empty = {k: [] for k in ("tensor_op", "tensor_bytes", "src", "dst", "tensor", "control_src", "control_dst")}
    column = {name: [row[k] for row in rows] for k, name in enumerate(ENTRIES[:4])}
    given = np.array([row[4] if len(row) > 4 else [] for row in rows], dtype=float).reshape(n, len(given_kinds))
    return Graph(
        names=tuple(f"op{i}" for i in range(n)), types=("T",), type_of=np.zeros(n, int), group=np.full(n, -1),
        param_bytes=np.zeros(n, int), kinds=("cpu", "gpu"), source="test", given_kinds=given_kinds,
        **(empty | column | {"given_s": given}),
    )  # fmt: skip


def test_roofline_by_hand():
    """On a V100: 10.99 TFLOP/s and 720 GB/s reachable, 5 us a launch, 0.5 us without one."""
    flops = 2 * 128 * 4096 * 8192  # an LSTM layer of 2048 units, batch 128: 8.59 GFLOP
    rows = [
        (flops, 0, True, BOTH),  # 8.59e9 / 10.99e12 = 781.6 us
        (0, 720_000_000, True, BOTH),  # 1 ms
        (flops, 720_000_000, True, BOTH),  # the longer of the two
        (0, 0, True, BOTH),
        (flops, 720_000_000, False, BOTH),
    ]
    found = roofline_s(make(rows), preset("V100"))
    assert found == pytest.approx([781.6e-6 + 5e-6, 1.005e-3, 1.005e-3, 5e-6, 0.0], rel=1e-4)


def test_half_of_the_efficiency_at_the_half_size():
    """A matmul of launch x reachable flops runs at half of the rate of a large one (Hockney's n_1/2)."""
    for p in PRESETS.values():
        reachable = p.peak_flops * p.flop_efficiency
        half = p.launch_s * reachable
        assert half / roofline_s(make([(half, 0, True, BOTH)]), p)[0] == pytest.approx(reachable / 2)


def test_costs_are_nan_exactly_where_an_op_cannot_run():
    """CPU ops have no time on GPUs, GPU ops none on CPUs, and all times are labelled modelled."""
    graph = make([(0, 0, True, CPU), (0, 0, True, GPU), (0, 0, True, BOTH)])
    found = model_costs(graph, load_cluster("v100x2-nvlink"))
    assert np.isnan(found.compute_s).tolist() == [[False, True, True], [True, False, False], [False] * 3]
    assert found.origin.tolist() == [MODELLED] * 3
    assert (found.basis, found.source) == ("modelled", "kernels and roofline of xeon-core, V100")


def test_speed_scales_whole_times():
    """A device twice as fast halves every time, launches included (Pesto, Fig 8a sweeps this)."""
    cluster = load_cluster("v100x2-nvlink")
    fast = replace(cluster, devices=(*cluster.devices[:2], replace(cluster.devices[2], speed=2.0)))
    found = model_costs(make([(1e9, 10**6, True, BOTH), (0, 0, False, BOTH)]), fast).compute_s
    assert found[:, 1] == pytest.approx(2 * found[:, 2])


def test_given_times_override_preset_before_kind():
    """A time given for the preset wins over one for the kind, and either over the model."""
    rows = [
        (1e9, 0, True, GPU, (3e-3, 2e-3)),
        (1e9, 0, True, GPU, (3e-3, NAN)),
        (1e9, 0, True, GPU, (NAN, NAN)),
        (1e9, 0, True, BOTH, (3e-3, 2e-3)),
        (1e9, 0, True, CPU, (NAN, 2e-3)),
    ]
    graph = make(rows, given_kinds=("gpu", "V100"))
    found = model_costs(graph, load_cluster("v100x2-pcie"))
    # 1e9 / 10.99e12 = 91 us and 5 us a launch.
    assert found.compute_s[:4, 1] == pytest.approx([2e-3, 3e-3, 96e-6, 2e-3], rel=1e-3)
    # Op 3 is placed on GPUs though a CPU could run it; op 4 runs on the CPU alone, whose time is modelled.
    assert found.origin.tolist() == [GIVEN, GIVEN, MODELLED, GIVEN, MODELLED]
    assert found.basis == "mixed: 3 of 5 ops given, 2 modelled"
    assert found.source.endswith("roofline of xeon-core, V100; times of 3 of 5 ops given by the graph")
    other = model_costs(graph, load_cluster("k80x8")).compute_s
    assert other[0, 1] == 3e-3


@pytest.mark.parametrize(("label", "near"), [("V1000", "V100"), ("gpus", "gpu"), ("v100", "")])
def test_times_for_what_is_neither_kind_nor_preset_are_refused(label, near):
    """Dropped without a word they were, and modelled; a preset that the cluster does not have is fine."""
    rows = [(1e9, 0, True, GPU, (3e-3,))]
    cluster = load_cluster("v100x2-pcie")
    with pytest.raises(InputError, match=f"'{label}', which is no kind of device and no preset") as caught:
        model_costs(make(rows, given_kinds=(label,)), cluster)
    assert f"did you mean {near}? known: " in str(caught.value) if near else "known: cpu, gpu, K80" in str(caught.value)
    assert model_costs(make(rows, given_kinds=("A100",)), cluster).basis == "modelled"


def test_group_held_back_by_a_cpu_op_is_not_given():
    """Ops 0 and 1 share a device, so op 1 keeps both on the CPU, where no time is given; op 2 is free."""
    rows = [(0, 0, True, BOTH, (1e-3,)), (0, 0, True, CPU, (NAN,)), (0, 0, True, BOTH, (1e-3,))]
    graph = replace(make(rows, given_kinds=("gpu",)), group=np.array([0, 0, -1]))
    assert model_costs(graph, load_cluster("v100x2-pcie")).origin.tolist() == [MODELLED, MODELLED, GIVEN]


def test_all_times_given_need_no_model():
    """A graph that gives every time for every kind is labelled given, never measured."""
    graph = make([(0, 0, True, BOTH, (1e-3, 2e-3))], given_kinds=("cpu", "gpu"))
    found = model_costs(graph, load_cluster("v100x2-pcie"))
    assert found.compute_s.tolist() == [[1e-3, 2e-3, 2e-3]]
    assert found.basis == "given"


def test_op_that_no_device_here_runs():
    """An op whose kind the cluster lacks has no time anywhere and does not count as given."""
    cluster = load_cluster("v100x2-pcie")
    alone = replace(cluster, devices=cluster.devices[:1], links=(), paths=((None,),))
    found = model_costs(make([(0, 0, True, GPU, (1e-3,))], given_kinds=("gpu",)), alone)
    assert np.isnan(found.compute_s).all()
    assert found.origin.tolist() == [MODELLED]


def test_unknown_preset_is_named():
    """A device whose preset does not exist is refused with a suggestion."""
    cluster = load_cluster("v100x2-pcie")
    wrong = replace(cluster, devices=(*cluster.devices[:2], replace(cluster.devices[2], preset="V100s")))
    with pytest.raises(InputError, match="no device preset is named 'V100s' - did you mean V100"):
        model_costs(make([(0, 0, True, BOTH)]), wrong)


@pytest.mark.parametrize("times", [[[-1.0]], [[np.inf]], [1.0]])
def test_costs_refuse_bad_times(times):
    """Negative and infinite times and wrong shapes are refused."""
    with pytest.raises(InputError, match="costs: "):
        Costs(compute_s=times, origin=[MODELLED], source="")


@pytest.mark.parametrize("origin", [[-1], [3], [0, 0], [], [[0]]])
def test_costs_refuse_bad_origins(origin):
    """An origin out of 0..2, and one that is not one number per op, are refused; here there is one op."""
    with pytest.raises(InputError, match="origin"):
        Costs(compute_s=[[1.0]], origin=origin, source="")


@pytest.mark.parametrize(
    ("counts", "basis"),
    [
        ({}, "modelled"),
        ({MEASURED: 2}, "measured"),
        ({MEASURED: 1374, MODELLED: 5}, "mixed: 1374 of 1379 ops measured, 5 modelled"),
        ({MODELLED: 3, GIVEN: 2, MEASURED: 1}, "mixed: 1 of 6 ops measured, 2 given, 3 modelled"),
    ],
)
def test_basis_counts_ops(counts, basis):
    """One word where all ops agree, modelled for no op at all, and counts otherwise: never a rounded 100 %."""
    origin = np.array([k for k, n in counts.items() for _ in range(n)], dtype=int)
    assert Costs(compute_s=np.zeros((len(origin), 1)), origin=origin, source="").basis == basis


def test_presets_are_ordered_as_in_life():
    """A large matmul and a large copy take less time on each newer GPU, and a core is slower than any."""
    graph = make([(1e12, 0, True, BOTH), (0, 10**10, True, BOTH)])
    times = np.stack([roofline_s(graph, preset(n)) for n in ("K80", "V100", "A100", "H100", "H200")])
    assert (np.diff(times, axis=0) <= 0).all()
    assert (roofline_s(graph, preset("xeon-core")) > times[0]).all()
    assert all(0 < p.flop_efficiency <= 1 and 0 < p.bandwidth_efficiency <= 1 and p.source for p in PRESETS.values())


def test_preset_in_a_device_description():
    """Names that drivers report lead to the preset; others lead to none."""
    assert preset_named_in("Tesla V100-SXM2-16GB") is PRESETS["V100"]
    assert preset_named_in("NVIDIA H200") is PRESETS["H200"]
    assert preset_named_in("Intel(R) Xeon(R) CPU") is None
    assert preset_named_in("V1000") is None
    # Of two that are named the one with most words.
    assert preset_named_in("NVIDIA H100 PCIe") is PRESETS["H100 PCIe"]
    assert preset_named_in("NVIDIA H100 80GB HBM3") is PRESETS["H100"]
    assert preset_named_in("NVIDIA GeForce RTX 4090") is PRESETS["RTX 4090"]


def test_whole_step_of_rnnlm():
    """The matmuls of RNNLM-2-2048 on one V100 take 100 to 300 ms; the paper needs 171 ms on two."""
    # Forward, gradient of the input and of the weights: three times two LSTM layers and a softmax over 10 000 words,
    # for 35 steps: 3 x 35 x (2 x 8.59 + 5.24) GFLOP = 2354 GFLOP at 10.99 TFLOP/s = 214 ms.
    layer, softmax = 2 * 128 * 4096 * 8192, 2 * 128 * 2048 * 10_000
    rows = [(f, 0, True, GPU) for f in [layer] * 6 * 35 + [softmax] * 3 * 35]
    total = roofline_s(make(rows), preset("V100")).sum()
    assert total == pytest.approx(214e-3 + len(rows) * 5e-6, rel=0.01)
