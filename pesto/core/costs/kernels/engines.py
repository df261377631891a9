"""Which rates of a device a data type computes at."""

from pesto.core.costs.kernels.machine import Machine
from pesto.core.costs.presets import Preset

_PRECISION: dict[str, tuple[str, ...]] = {
    "float64": ("fp64",), "float32": ("tf32", "fp32"), "float16": ("fp16",), "bfloat16": ("bf16",),
    "int8": ("int8", "fp32"), "uint8": ("int8", "fp32"), "qint8": ("int8", "fp32"), "quint8": ("int8", "fp32"),
    "complex64": ("fp32",), "complex128": ("fp64",),
}  # fmt: skip
"""Precisions that a data type computes in, the first that a device has."""
_NO_FLOATS = ("int", "uint", "qint", "quint", "bool", "string", "resource", "variant")
"""What the names of data types begin with that are no precision to train in."""
_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1}


def missing_precision(dtype: str, device: Preset) -> str:
    """The precision of a data type that the device has no peak for; empty where it has, and for what is no float.

    Ops of such a type get the rates of float32.
    """
    if dtype.startswith(_NO_FLOATS):
        return ""
    wanted = _PRECISION.get(dtype or "float32", (dtype,))
    # A preset has a rate for float32 whatever it is called.
    there = any(p in dict(device.peaks) for p in wanted) or (not device.complete and dtype in ("", "float32"))
    return "" if there else wanted[-1]


def engine(dtype: str, device: Preset) -> Machine:
    """The device as kernels of a data type see it; float32's where it has no peak for the type."""
    peaks = dict(device.peaks)
    asked = _PRECISION.get(dtype, _PRECISION["float32"])
    own = next((p for p in (*asked, "tf32", "fp32", *peaks) if p in peaks), "fp32")
    vector = peaks.get("fp64", peaks[own]) if own == "fp64" else peaks.get("fp32", peaks[own])
    tensor = own in device.tensor
    return Machine(
        peak_flops=peaks[own] * device.reach, bandwidth=device.bandwidth, sms=device.sms, clock_hz=device.clock_hz,
        launch_s=device.launch_s, element_bytes=_BYTES[own], tensor=tensor, l2_bytes=device.l2_bytes,
        plain_flops=vector * device.reach, least_tile=device.least_tile, most_splits=device.most_splits,
        fitted_to=device.fitted_to,
    )  # fmt: skip
