"""Devices that a cluster file describes: rates beside a preset or in its place, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from cluster_files import HOST, parse
from hypothesis import given, settings
from hypothesis import strategies as st

from pesto.cli.main import pesto as command
from pesto.core.cluster import PRECISIONS, Cluster, Rates
from pesto.core.costs.analytical import model_costs
from pesto.core.costs.presets import device_preset, preset
from pesto.core.errors import InputError
from pesto.core.files import graph_file
from pesto.core.graph import Graph

BEGIN = f"""\
{HOST}[[links]]
pairs = [["cpu", "gpu"], ["gpu", "gpu"]]
latency_us = 10
bandwidth_gb_s = 2
[[devices]]
"""
WHOLE = """\
name = "mine"
memory_gib = 8
peak_tflops = {fp32 = 10, fp16 = 80}
memory_gb_s = 500
sms = 40
clock_ghz = 1.5
"""


def machine(text: str) -> Cluster:
    """The host, its links, and what the text says of a device."""
    return parse(BEGIN + text)


def graph(dtype: str, flops: float = 1e12) -> Graph:
    op = {"name": "a", "type": "MatMul", "outputs": [4], "dtypes": [dtype], "flops": flops, "runs_on": ["gpu"]}
    op |= {"kernel": "matmul", "sizes": [8000, 8000, 8000, 1, 0, 0]}
    return graph_file.loads(json.dumps({"format": "pesto-graph", "format_version": 1, "ops": [op]}).encode(), "x")


def seconds(text: str, dtype: str = "float32") -> float:
    return float(model_costs(graph(dtype), machine(text)).compute_s[0, 1])


def test_rates_beside_a_preset_replace_its_own() -> None:
    """One peak, the bandwidth and the launch are given; all else, the memory too, is the V100's."""
    device = machine('preset = "V100"\npeak_tflops = {fp32 = 30}\nmemory_gb_s = 450\nlaunch_us = 9').devices[1]
    assert device.rates == Rates(peaks=(("fp32", 30e12),), bandwidth=450e9, launch_s=9e-6)
    found, plain = device_preset(device), preset("V100")
    assert dict(found.peaks) == dict(plain.peaks) | {"fp32": 30e12}
    assert (found.bandwidth, found.launch_s) == (450e9, pytest.approx(9e-6))
    assert (found.sms, found.clock_hz, found.l2_bytes) == (plain.sms, plain.clock_hz, plain.l2_bytes)
    assert device.memory_bytes == 16 * 2**30


def test_the_numbers_of_a_preset_make_the_preset() -> None:
    """Whoever writes a V100's datasheet beside it gets a V100."""
    whole = "peak_tflops = {fp64 = 7.8, fp32 = 15.7, fp16 = 125}\nmemory_gb_s = 900\nl2_mib = 6\nsms = 80\n"
    whole += "clock_ghz = 1.53\n"
    for dtype in ("float32", "float16"):
        assert seconds(f'preset = "V100"\n{whole}launch_us = 5', dtype) == pytest.approx(
            seconds('preset = "V100"', dtype)
        )


def test_a_device_that_no_preset_knows() -> None:
    """It has a name of its own, is a GPU, and has times by what is said of it."""
    device = machine(WHOLE + "count = 2\n").devices[2]
    assert (device.name, device.kind, device.preset) == ("gpu:1", "gpu", "mine")
    assert device_preset(device).tensor == ("fp16",)
    assert seconds(WHOLE) > 1e12 / 10e12 and seconds(WHOLE) > 3 * seconds(WHOLE, "float16")
    assert (
        model_costs(graph("float32"), machine(WHOLE)).source
        == "kernels and roofline of xeon-core, mine with rates of its own"
    )


def test_speed_and_rates_go_together() -> None:
    """`speed` is a factor on what the rates give."""
    assert seconds(WHOLE + "speed = 2\n") == pytest.approx(seconds(WHOLE) / 2)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('preset = "V100"\nmemory_gb_s = -1', "memory_gb_s of V100 is -1, which cannot be - give 0.1 to 1e+06 GB/s"),
        ('preset = "V100"\nclock_ghz = 0', "clock_ghz of V100 is 0, which cannot be - give 0.01 to 20 GHz"),
        ('preset = "V100"\nlaunch_us = nan', "launch_us: nan is not a finite number"),
        ('preset = "V100"\npeak_tflops = {fp16 = inf}', "peak_tflops.fp16: inf is not a finite number"),
        (
            'preset = "V100"\npeak_tflops = {fp16 = 125e12}',
            "is 1.25e+14, which cannot be - give 0.001 to 100000 TFLOP/s",
        ),
        (
            'preset = "V100"\npeak_tflops = {fp16 = 125e9}',
            "peak_tflops.fp16 of V100 is 1.25e+11, which cannot be",
        ),
        ('preset = "V100"\nclock_ghz = 1530', "clock_ghz of V100 is 1530, which cannot be - give 0.01 to 20 GHz"),
        ('preset = "V100"\nsms = 0', "sms of V100 is 0, which cannot be - give 1 to 100000 multiprocessors"),
        ('preset = "V100"\npeak_tflops = {fp61 = 1}', "unknown key 'fp61' - "),
        ('preset = "V100"\npeak_tflops = 15.7', "peak_tflops: Expected `object | null`, got `float`"),
        ('preset = "V100"\nname = "mine"', "V100 has a preset and a name - drop one"),
        ('name = "V100"\nmemory_gib = 8\nsms = 4', "name 'V100' is a preset - write preset = 'V100'"),
        ("memory_gib = 8", "device has no preset - name one, or give peak_tflops, memory_gb_s, sms and clock_ghz"),
        ('name = "mine"\nmemory_gib = 8\nsms = 4', "not all of peak_tflops, memory_gb_s, sms and clock_ghz are given"),
        (WHOLE.replace("memory_gib = 8\n", ""), "mine has no memory_gib - give the GiB of one device"),
        ('preset = "xeon-core"\nmemory_gib = 8\nsms = 4', "xeon-core is a preset of one core"),
        ('preset = "V1000"', "no device preset is named 'V1000' - did you mean V100"),
    ],
)
def test_bad_rates_are_refused_in_one_line(text: str, fault: str) -> None:
    """With the file, the key and what to do."""
    with pytest.raises(InputError) as caught:
        machine(text)
    said = str(caught.value)
    assert fault in said and said.startswith("my.toml: ") and "\n" not in said


@pytest.mark.parametrize(
    ("dtype", "missing"), [("float64", "fp64"), ("bfloat16", "bf16"), ("complex64", ""), ("int32", ""), ("float16", "")]
)
def test_a_type_without_a_peak_is_refused(dtype: str, missing: str, tmp_path: Path) -> None:
    """Of a device that the file alone describes, with exit code 3; integers and what it has are fine."""
    (tmp_path / "c.toml").write_text(BEGIN + WHOLE)
    graph_file.save(graph(dtype), tmp_path / "g.json")
    verb = [
        "solve",
        "--graph",
        "g.json",
        "--cluster",
        "c.toml",
        "--time-limit",
        "0",
        "--solver",
        "list",
        "-q",
        "-o",
        "p.json",
    ]
    done = CliRunner().invoke(command, [str(tmp_path / a) if a.endswith((".json", ".toml")) else a for a in verb])
    if not missing:
        assert done.exit_code == 0, done.output
        return
    fault = f"device gpu:0: no peak for {dtype}, in which the graph computes - add {missing} to its peak_tflops"
    with pytest.raises(InputError, match=fault):
        model_costs(graph(dtype), machine(WHOLE))
    assert isinstance(done.exception, InputError) or done.exit_code == InputError.exit_code
    # Beside a preset it is costed as float32, and the result says so.
    assert seconds('preset = "V100"\nmemory_gb_s = 450', "bfloat16") == seconds('preset = "V100"\nmemory_gb_s = 450')


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(PRECISIONS), st.floats(0.01, 5000), min_size=1), st.floats(1, 20000),
    st.integers(1, 500), st.floats(0.2, 4),
)  # fmt: skip
def test_any_plausible_device_gives_times(peaks: dict[str, float], gb_s: float, sms: int, ghz: float) -> None:
    """What the file says comes back, and every time is finite and no quicker than the peak."""
    table = ", ".join(f"{name} = {value!r}" for name, value in peaks.items())
    text = f"memory_gib = 8\npeak_tflops = {{{table}}}\nmemory_gb_s = {gb_s!r}\nsms = {sms}\nclock_ghz = {ghz!r}\n"
    rates = machine(text).devices[1].rates
    assert rates is not None and dict(rates.peaks) == pytest.approx({p: x * 1e12 for p, x in peaks.items()})
    assert (rates.bandwidth, rates.sms, rates.clock_hz) == (pytest.approx(gb_s * 1e9), sms, pytest.approx(ghz * 1e9))
    if "fp32" in peaks or "tf32" in peaks:
        took = seconds(text)
        best = max(peaks.values()) * 1e12
        assert np.isfinite(took) and took >= 2 * 8000**3 / best


@pytest.mark.parametrize("bad", [{"peaks": (("fp32", 0.0),)}, {"bandwidth": float("nan")}, {"sms": -1}])
def test_rates_refuse_what_is_no_rate(bad: dict[str, object]) -> None:
    """Also where no file is read."""
    with pytest.raises(InputError, match="it must be finite and above zero"):
        Rates(**bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no precision is named 'fp61'"):
        Rates(peaks=(("fp61", 1.0),))
