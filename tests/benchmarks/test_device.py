"""The report on a GPU's measurements, on small ones made by hand for an H100 (3350 GB/s, of which 80 % are reached)."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.device import measure
from benchmarks.device.report import fitted_rows, read, report
from benchmarks.device.torch_steps import class_of, step_graph
from pesto.core.graph import CONV_FILTER, CONV_INPUT, MATMUL

LAUNCH = 3.5e-6
HELD_OUT_ERRORS = {
    ("matmul", "float32"): 0.13, ("matmul", "tf32"): 0.19, ("matmul", "float16"): 0.21, ("matmul", "bfloat16"): 0.22,
    ("conv forward, channels first", "float32"): 0.17, ("conv input gradient, channels first", "float32"): 0.12,
    ("conv forward, channels last", "tf32"): 0.19, ("conv input gradient, channels last", "tf32"): 0.14,
    ("conv forward, channels last", "bfloat16"): 0.23, ("conv input gradient, channels last", "bfloat16"): 0.26,
}  # fmt: skip
"""Mean relative errors that both cards stay below on shapes that no constant was fitted to."""
STEP_ERROR = 0.15
"""The same of whole replayed steps."""
MILLISECOND = {"kernel": "", "sizes": [], "flops": 0.0, "bytes": 2_680_000_000, "dtype": "float32"}
"""An op that moves bytes for 1 ms."""


def row(op, seconds, **more):
    return {"kind": "add", "op": op, "seconds": seconds, "p10": seconds, "count": 5} | more


def measured(**more):
    lists = {key: [] for key in ("rows", "steps", "copies", "plans", "launches", "faults")}
    machine = {"gpu": "NVIDIA H100 80GB HBM3", "torch": "2.11.0", "date": "2026-01-01T00:00:00+00:00"}
    return {"format_version": 1, "machine": machine, **lists, **more}


def test_kernels_are_held_against_the_preset() -> None:
    """Half of 2 (1 ms + a launch) and all of 1 (1 ms + a launch): ratios 0.5 and 1, and 2 of 3 in sum."""
    one = 1e-3 + LAUNCH
    said = report(measured(rows=[row(MILLISECOND, 2 * one), row(MILLISECOND, one)]))
    assert said["preset"] == "H100"
    (errors,) = said["kernels"]
    head = {"device": "H100", "dtype": "float32", "kind": "add", "n": 2, "mean_error": 0.25, "median_ratio": 0.75}
    assert {key: errors[key] for key in head} == head
    assert errors["sum_ratio"] == round(2 / 3, 4)


def test_float32_is_predicted_without_tf32() -> None:
    """A large product takes longer by a factor near the peaks' 494.7 to 66.9."""
    op = {"kernel": "matmul", "sizes": [8192, 8192, 8192, 1, 0, 0], "flops": 2.0 * 8192**3, "bytes": 3 * 4 * 8192**2}
    rows = [row({**op, "dtype": dtype}, 1.0) for dtype in ("float32", "tf32")]
    said = {r["dtype"]: r["sum_ratio"] for r in report(measured(rows=rows))["kernels"]}
    assert 6 < said["float32"] / said["tf32"] < 9


def test_copies_follow_the_link() -> None:
    """7 us, then 16 lanes of PCIe 5.0 of which 86.2 % are reached; inside the GPU a read and a write."""
    head = {"memory": "pinned", "beside": None, "bytes": 10**9, "seconds": 0.02}
    there, inside = report(measured(copies=[head | {"direction": d} for d in ("h2d", "d2d")]))["copies"]
    assert there["predicted_s"] == pytest.approx(7e-6 + 1 / (16 * 32 / 8 * 128 / 130 * 0.862))
    assert there["ratio"] == pytest.approx(there["predicted_s"] / 0.02)
    assert inside["predicted_s"] == pytest.approx(LAUNCH + 2e9 / 2.68e12)


def test_an_offloaded_activation_waits_for_both_ways() -> None:
    """1 ms on the GPU, there and back, and the join; its second op is shorter than that."""
    ops = [
        {"name": "0", "inputs": [], "device": "gpu:0", "out_bytes": 10**8, "op": MILLISECOND},
        {"name": "1", "inputs": ["0"], "device": "gpu:0", "out_bytes": 10**8, "op": MILLISECOND},
        {"name": "host", "inputs": ["0"], "device": "cpu:0", "out_bytes": 10**8, "op": None},
        {"name": "join", "inputs": ["1", "host"], "device": "gpu:0", "out_bytes": 8, "op": MILLISECOND},
    ]
    plan = {"plan": "offload", "size": 1, "ops": ops, "kept": {"seconds": 3e-3}, "offloaded": {"seconds": 6e-3}}
    (said,) = report(measured(plans=[plan]))["plans"]
    way = 7e-6 + 0.1 / (16 * 32 / 8 * 128 / 130 * 0.862)
    assert said["predicted_s"] == pytest.approx(2 * (1e-3 + LAUNCH + way), abs=1e-8)
    assert (said["kept_s"], said["offloaded_s"]) == (3e-3, 6e-3)


LOG = {
    "storages": [4 * 8 * 16, 4 * 16 * 4, 4 * 8 * 4, 4 * 8 * 4],
    "tensors": [
        [0, [8, 16], [16, 1], "float32"],  # %0: the batch
        [1, [4, 16], [16, 1], "float32"],  # %1: a weight
        [1, [16, 4], [1, 16], "float32"],  # %2: it transposed
        [2, [8, 4], [4, 1], "float32"],  # %3: the product
        [3, [8, 4], [4, 1], "float32"],  # %4: its rectified values
    ],
    "ops": [
        ["aten.t.default", ["%1"], "%2", []],
        ["aten.mm.default", ["%0", "%2"], "%3", []],
        ["aten.relu.default", ["%3"], "%4", []],
        ["aten.add_.Tensor", ["%1", "%1"], "%1", ["%1"]],
    ],
}


def test_a_step_is_made_of_what_torch_listed() -> None:
    """A view is no op, a product has its sizes, and an update writes where the weight is."""
    graph = step_graph(LOG, "log")
    assert [graph.types[k] for k in graph.type_of] == ["held", "held", "mm.default", "relu.default", "add_.Tensor"]
    assert graph.kernels[2, :7].tolist() == [MATMUL, 8, 4, 16, 1, 0, 1]
    assert graph.flops[2] == 2 * 8 * 4 * 16
    assert graph.moved_bytes[2:].tolist() == [4 * (8 * 16 + 16 * 4 + 8 * 4), 2 * 4 * 32, 3 * 4 * 64]
    assert graph.param_bytes.tolist() == [256, 512, 0, 0, 0]


def test_a_convolution_has_two_gradients() -> None:
    """One kernel each, of the sizes of the forward pass."""
    shapes = ([2, 8, 6, 6], [2, 3, 6, 6], [8, 3, 3, 3], [2, 3, 6, 6], [8, 3, 3, 3])
    tensors = [[k, s, [s[1] * s[2] * s[3], s[2] * s[3], s[3], 1], "float32"] for k, s in enumerate(shapes)]
    args = ["%0", "%1", "%2", None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]]
    log = {"storages": [4 * 576, 4 * 216, 4 * 216, 4 * 216, 4 * 216], "tensors": tensors,
           "ops": [["aten.convolution_backward.default", args, ["%3", "%4", None], []]]}  # fmt: skip
    rows = step_graph(log, "log").kernels[-2:].tolist()
    sizes = [2, 3, 6, 6, 8, 3, 3, 1, 1, 6, 6]
    assert rows == [[CONV_INPUT, *sizes], [CONV_FILTER, *sizes]]


def test_a_step_is_held_against_the_simulation() -> None:
    """Gaps, kinds of kernels, and the memory: weight and batch, and two tensors of 128 bytes at once."""
    names = ["gemm", "aten::mm", "vectorized", "aten::relu"]
    profile = {"names": names, "kernels": [[0, 1, 0.0, 10.0, 7], [2, 3, 12.0, 10.0, 7]]}
    step = {"model": "gpt2", "length": 16, "dtype": "tf32", "faults": [], "ops": LOG, "eager": {"seconds": 30e-6},
            "eager_profile": profile,
            "memory": {"peak_bytes": 2048, "before_bytes": 1800, "requested_peak_bytes": 1024}}  # fmt: skip
    (said,) = report(measured(steps=[step]))["steps"]
    assert (said["eager_kernels"], said["eager_busy_s"], said["eager_gaps_s"]) == (2, 20e-6, 2e-6)
    assert said["predicted_peak_bytes"] == 512 + 256 + 2 * 128
    assert (said["own_peak_bytes"], said["predicted_own_peak_bytes"]) == (248, 2 * 128)
    assert said["classes"]["matmul"]["measured_s"] == 10e-6
    assert said["predicted_s"] == pytest.approx(sum(c["predicted_s"] for c in said["classes"].values()), abs=5e-9)


def test_kernels_are_classed_by_name() -> None:
    """As the dispatcher and the profiler name them."""
    same = {
        "matmul": ("addmm.default", "aten::mm"),
        "convolution": ("convolution.default", "aten::cudnn_convolution"),
        "optimizer": ("_fused_adamw_.default", "aten::_foreach_add_"),
        "element-wise and sums": ("add.Tensor", "aten::mul"),
    }
    for label, found in same.items():
        assert {class_of(name) for name in found} == {label}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["-o", "no-such-folder/x.json"], "no folder no-such-folder"),
        (["-o", "x.json", "--minutes", "99"], "--minutes is 99"),
        (["-o", "x.json", "--device", "tpu"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(given, says, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        measure.arguments(given)
    said = capsys.readouterr().err.strip()
    assert ended.value.code == 2
    assert says in said
    assert "\n" not in said


def test_other_files_and_devices_are_refused(tmp_path: Path) -> None:
    """In one line; the report's program says it too, and ends with 2."""
    path = tmp_path / "x.json"
    for text, says in (("{", "Expecting"), ("[]", "no measurements"), ('{"format_version": 1}', "machine is missing")):
        path.write_text(text)
        with pytest.raises(ValueError, match=says):
            read(path)
    with pytest.raises(ValueError, match="no preset of a GPU fits 'none'"):
        report(measured(machine={"gpu": "none"}))
    path.write_text(json.dumps(measured()))
    assert read(path) == measured()
    packed = tmp_path / "x.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(measured()).encode()))
    assert read(packed) == measured()
    for wrong in (b"{}", packed.read_bytes()[:-20], packed.read_bytes()[:15] + bytes(40)):
        packed.write_bytes(wrong)
        with pytest.raises(ValueError, match="give a file that"):
            read(packed)


@pytest.mark.slow
def test_the_program_prints_tables(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(measured(rows=[row(MILLISECOND, 2 * (1e-3 + LAUNCH))])))
    command = [sys.executable, "-m", "benchmarks.device", "report", str(path)]
    done = subprocess.run(command, cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, check=True)
    assert "| H100 | float32 | add | 1 | 50.0 % | 0.50 |" in done.stdout


@pytest.mark.parametrize("card", ["h100", "h200"])
def test_predictions_are_near_the_measured_cards(card: str) -> None:
    """All rows were measured without a fault; errors stay below their limits, and no step's own peak is far off."""
    data = read(Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "device" / f"{card}.json.gz")
    assert all(s["rows"] == s["of"] for s in data["sections"].values())
    said = report(data, held_out=True)
    assert not said["faults"]
    assert said["preset"] == card.upper()
    assert [len(data[key]) for key in ("rows", "steps", "copies", "plans")] == [1472, 9, 135, 8]
    errors = {(r["kind"], r["dtype"]): r["mean_error"] for r in said["kernels"]}
    assert {key: errors[key] for key, most in HELD_OUT_ERRORS.items() if errors[key] > most} == {}
    ratios = [step["predicted_s"] / step["graph_s"] for step in said["steps"]]
    assert sum(abs(ratio - 1) for ratio in ratios) / len(ratios) < STEP_ERROR
    assert all(0.99 < step["predicted_own_peak_bytes"] / step["own_peak_bytes"] <= 1 for step in said["steps"])


def test_a_shape_is_fitted_or_held_out_in_all_its_types() -> None:
    """Every second shape is fitted; a layer's batches are one shape, and kinds without constants are held out."""
    kernel = {"flops": 1.0, "bytes": 1, "kernel": ""}
    rows = [{"kind": "matmul", "op": kernel | {"sizes": [m, 8, 8, 1, 0, 0], "dtype": d}} for m, d in
            ((8, "tf32"), (16, "tf32"), (16, "float32"), (8, "float32"), (32, "tf32"))]  # fmt: skip
    rows += [{"kind": "conv forward", "op": kernel | {"sizes": [n, c, 8], "dtype": "tf32"}} for n, c in
             ((1, 4), (2, 4), (1, 8))]  # fmt: skip
    rows.append({"kind": "add", "op": kernel | {"sizes": [], "dtype": "tf32"}})
    assert fitted_rows(rows) == [True, False, False, True, True, True, True, False, False]


def test_replayed_kernels_have_the_launch_of_graphs() -> None:
    """Half a microsecond in place of the preset's, where the row was replayed."""
    launches = [{"kind": "add, dependent", "how": how, "seconds": s} for how, s in (("stream", 9e-6), ("graph", 5e-7))]
    small = MILLISECOND | {"bytes": 0}
    rows = [row(small, 5e-7, how="graph"), row(small, LAUNCH, how="stream")]
    (errors,) = report(measured(rows=rows, launches=launches))["kernels"]
    assert (errors["n"], errors["mean_error"]) == (2, 0.0)
