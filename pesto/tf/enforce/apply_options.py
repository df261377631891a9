"""Options of applying a plan, and logical CPUs: several devices of one process, to try a plan without GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from pesto.core.errors import UsageError
from pesto.tf.apply_placement.targets import Devices


def logical_cpus(count: int) -> None:
    """Split the host's CPU into `count` logical devices; call it before TensorFlow runs anything.

    UsageError when TensorFlow has started with another number of them.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) != count:
            raise UsageError.build(
                "logical_cpus: TensorFlow has started already",
                remedy="call it right after the imports, before any op runs",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """The keywords of `pesto.apply`."""

    devices: Devices = None
    """TensorFlow's device for each of the plan's (see `pesto.tf.apply_placement.targets`)."""
    order: bool = True
    """True enforces the plan's order; False only its placement."""
    trace: bool = False
    """True traces the first run of each step in a v1 session and compares the order in which its ops ran."""

    def __post_init__(self) -> None:
        """UsageError for values of another type."""
        allowed: tuple[type, ...] = (type(None), str, Mapping)
        if not isinstance(self.devices, allowed):
            kind = type(self.devices).__name__
            raise UsageError.build(
                f"devices: a {kind} is no choice of devices", remedy="give 'cpu', 'gpu', or a mapping by name"
            )
        if {type(self.order), type(self.trace)} != {bool}:
            raise UsageError("order and trace are True or False")
