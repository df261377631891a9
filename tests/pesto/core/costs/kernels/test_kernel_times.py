"""Times of single kernels: bounds that hold for any shape, tensor cores where they apply, devices that scale."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pesto.core.costs.kernel_rates import engine, missing_precision
from pesto.core.costs.kernel_times import FORMS, gpu_op_times, kernel_times
from pesto.core.costs.presets import PRESETS, preset
from pesto.core.graph import CONV, CONV_FILTER, CONV_INPUT, DEPTHWISE, LOOP, MATMUL, PASSES, Graph

GPUS = [p.name for p in PRESETS.values() if p.sms]
DTYPES = ("float64", "float32", "float16", "bfloat16", "int8", "fp6")
Size = st.integers(1, 1 << 16)


def product(m: int, n: int, k: int, batch: int = 1, *, a: int = 0, b: int = 0) -> list[int]:
    return [MATMUL, m, n, k, batch, a, b, 0, 0, 0, 0, 0]


def conv(form: int, n: int, c: int, size: int, k: int, taps: int = 3, stride: int = 1) -> list[int]:
    return [form, n, c, size, size, k, taps, taps, stride, stride, -(-size // stride), -(-size // stride)]


def seconds(row: list[int], device: str = "V100", dtype: str = "float32") -> float:
    return float(kernel_times(np.array([row]), engine(dtype, preset(device)))[0][0])


def graph(rows: list[list[int]], dtype: str = "float32", **more: Any) -> Graph:
    n, none = len(rows), np.zeros(0, dtype=int)
    said = {"flops": np.zeros(n), "moved_bytes": np.zeros(n, int), "launches": np.ones(n, bool)} | more
    return Graph(
        names=tuple(f"op{i}" for i in range(n)), types=("T",), type_of=np.zeros(n, int), tensor_op=none,
        tensor_bytes=none, src=none, dst=none, tensor=none, control_src=none, control_dst=none,
        group=np.full(n, -1), kinds=("cpu", "gpu"), runs_on=np.ones((n, 2), bool), param_bytes=np.zeros(n, int),
        given_s=np.empty((n, 0)), source="test", kernels=np.array(rows), dtypes=(dtype,), dtype_of=np.zeros(n, int),
        **said,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(Size, Size, Size, st.integers(1, 64), st.sampled_from(GPUS), st.sampled_from(DTYPES), st.booleans())
def test_no_product_is_quicker_than_the_device(
    m: int, n: int, k: int, batch: int, device: str, dtype: str, swapped: bool
) -> None:
    """Neither than its peak, nor than memory with all of L2 full beforehand, nor than a part of its launch."""
    able = preset(device)
    machine = engine(dtype, able)
    took = seconds(product(m, n, k, batch, b=int(swapped)), device, dtype)
    peak = max(machine.peak_flops, machine.plain_flops)
    moved = machine.element_bytes * batch * (m * k + k * n + m * n) - machine.l2_bytes
    assert np.isfinite(took)
    assert took >= max(2 * m * n * k * batch / peak, moved / machine.bandwidth, 0.3 * machine.launch_s)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([CONV, CONV_INPUT, CONV_FILTER]), st.integers(1, 64), st.integers(1, 512), st.integers(1, 128),
    st.integers(1, 512), st.sampled_from([1, 3, 5, 7]), st.sampled_from([1, 2]), st.sampled_from(GPUS),
    st.sampled_from(DTYPES),
)  # fmt: skip
def test_convolutions_have_a_time_and_a_form(
    form: int, n: int, c: int, size: int, k: int, taps: int, stride: int, device: str, dtype: str
) -> None:
    """Finite, at least a tenth of the launch, and Winograd's algorithm for 3x3 with stride 1 alone."""
    row = conv(form, n, c, size, k, taps, stride)
    took, which = kernel_times(np.array([row]), engine(dtype, preset(device)))
    assert np.isfinite(took[0]) and took[0] > 0.1 * preset(device).launch_s
    label = FORMS[which[0]]
    assert label == "implicit matmul" or (label.startswith("Winograd") and taps == 3 and stride == 1)


def test_twice_the_batch_never_takes_less_time() -> None:
    """Nor less than half of it more, once the device is full."""
    for dtype in ("float32", "float16"):
        took = [seconds(product(512, 512, 512, batch), dtype=dtype) for batch in (1, 2, 4, 8, 64, 128, 256)]
        assert (np.diff(took) >= 0).all() and took[-1] == pytest.approx(2 * took[-2], rel=0.1)


def test_tensor_cores_for_the_shapes_that_use_them() -> None:
    """A large product in half precision is at least 4 times quicker, one with an odd dimension is not."""
    whole, odd = product(4096, 4096, 4000), product(4096, 4097, 4000)
    assert seconds(whole) >= 4 * seconds(whole, dtype="float16")
    assert seconds(odd, dtype="float16") >= 2 * seconds(whole, dtype="float16")
    # Seven channels are no multiple of eight.
    assert seconds(conv(CONV, 16, 7, 64, 256), dtype="float16") > seconds(conv(CONV, 16, 8, 64, 256), dtype="float16")
    # Pascal has no tensor cores, only twice the rate.
    assert 1.5 < seconds(whole, "P100") / seconds(whole, "P100", "float16") < 2.5


def test_float32_is_tf32_where_there_is_one() -> None:
    """From Ampere on: more than the 2.5 times by which vector units outdo a V100's."""
    large = product(8192, 8192, 8192)
    assert seconds(large) / seconds(large, "A100") > 5
    assert engine("float32", preset("A100")).tensor and not engine("float32", preset("V100")).tensor


def test_types_without_a_peak() -> None:
    """They are named, and get the rates of float32; integers, and what is not known, need none."""
    v100 = preset("V100")
    assert [missing_precision(d, v100) for d in DTYPES] == ["", "", "", "bf16", "", "fp6"]
    assert [missing_precision(d, v100) for d in ("", "int32", "resource")] == ["", "", ""]
    assert engine("bfloat16", v100) == engine("float32", v100)
    assert all(not missing_precision(d, preset("H100")) for d in DTYPES[:5])


def test_presets_are_ordered_by_their_peaks() -> None:
    """A large product takes less time on each newer GPU of one class."""
    for dtype in ("float32", "float16"):
        took = [
            seconds(product(8192, 8192, 8192), name, dtype) for name in ("K80", "P100", "V100", "A100", "H100", "B200")
        ]
        assert (np.diff(took) < 0).all(), took


def test_rows_that_are_not_aligned_slow_a_hopper() -> None:
    """Products on tensor cores take longer with each halving of 16 bytes, whichever matrix it is of."""
    aligned = seconds(product(4096, 4096, 4096), "H200", "bfloat16")
    for odd, times_ in ((4100, 1.8), (4098, 2.8), (4097, 3.8)):
        wide, deep, tall = product(4096, odd, 4096), product(4096, 4096, odd), product(odd, 4096, 4096, a=1)
        assert all(times_ < seconds(row, "H200", "bfloat16") / aligned < times_ + 1.5 for row in (wide, deep, tall))
        assert seconds(product(odd, 4096, 4096), "H200", "bfloat16") < 1.1 * aligned, "rows of A are 4096 long"
    for other, dtype in (("H200", "float64"), ("A100", "bfloat16")):
        rows = (product(4096, 4100, 4096), product(4096, 4096, 4096))
        assert seconds(rows[0], other, dtype) < 1.1 * seconds(rows[1], other, dtype)


def test_what_has_no_form_is_timed_by_launches_and_bytes() -> None:
    """A loop launches its body's kernels each trip; passes read again; what launches nothing takes nothing."""
    rows = [[0] * 12, [LOOP, 700, *[0] * 10], [PASSES, 2, 720_000_000, *[0] * 9], product(64, 64, 64)]
    found = gpu_op_times(graph(rows, launches=np.array([True, True, True, False])), preset("V100"))
    assert found.seconds == pytest.approx([5e-6, 700 * 5e-6, 1.010e-3, 0.0])
    assert [FORMS[k] for k in found.form] == ["bytes and operations", "loop", "passes", "nothing launched"]
    depth = conv(DEPTHWISE, 16, 64, 112, 64)
    slow = gpu_op_times(graph([depth], flops=np.array([1e9]), moved_bytes=np.array([10**8])), preset("V100"))
    assert slow.seconds[0] >= 1e9 / 15.7e12 and FORMS[slow.form[0]] == "depthwise"


def test_equal_rows_have_equal_times_in_any_order() -> None:
    """Rows are timed once each and put back where they stand."""
    rng = np.random.default_rng(3)
    shapes = [product(*rng.integers(1, 4000, 3).tolist()) for _ in range(90)] + [conv(CONV, 8, 64, 56, 64)]
    picked = rng.integers(0, len(shapes), 400)
    found = gpu_op_times(graph([shapes[i] for i in picked], "float16"), preset("V100")).seconds
    assert found == pytest.approx([seconds(shapes[i], dtype="float16") for i in picked])


def test_rates_scale_what_they_should() -> None:
    """Twice the bandwidth quickens what memory holds up, and no product of large matrices by more than a tenth."""
    able = preset("V100")
    wide = replace(able, bandwidth=2 * able.bandwidth, l2_bytes=0.0)
    plain = replace(able, l2_bytes=0.0)

    def both(row: list[int]) -> float:
        took = [float(kernel_times(np.array([row]), engine("float32", d))[0][0]) for d in (plain, wide)]
        return took[0] / took[1]

    assert both(product(16, 1024, 500_000)) > 1.05 and both(product(8192, 8192, 8192)) < 1.1


@pytest.mark.parametrize("form", [CONV, CONV_INPUT, CONV_FILTER])
def test_winograds_algorithm_is_for_images_alone(form: int) -> None:
    """A 3x3 convolution takes it; the same sizes of a volume are an implicit matmul, and take longer."""
    row = conv(form, 32, 256, 56, 256)
    flat, deep = (gpu_op_times(replace(graph([row]), types=(name,)), preset("V100")) for name in ("Conv2D", "Conv3D"))
    assert FORMS[flat.form[0]].startswith("Winograd") and FORMS[deep.form[0]] == "implicit matmul"
    assert deep.seconds[0] > flat.seconds[0]
