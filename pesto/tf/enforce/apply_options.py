"""Options of applying a plan, logical CPUs to try one without GPUs, and the settings of the process meanwhile."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tensorflow as tf

from pesto.core.errors import UsageError
from pesto.tf.apply_placement.targets import Devices
from pesto.tf.placement_refusals import check_clustering


def logical_cpus(count: int) -> None:
    """Split the host's CPU into `count` logical devices; call it before TensorFlow runs anything.

    Raise UsageError when TensorFlow has started with another number of them.
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
        """Raise UsageError for values of another type."""
        allowed: tuple[type, ...] = (type(None), str, Mapping)
        if not isinstance(self.devices, allowed):
            raise UsageError.build(
                f"devices: a {type(self.devices).__name__} is no choice of devices",
                remedy="give 'cpu', 'gpu', or a mapping by name",
            )
        if {type(self.order), type(self.trace)} != {bool}:
            raise UsageError("order and trace are True or False")


_LOCK = threading.Lock()
"""Serializes contexts, since their settings belong to the whole process."""
_HOLDER = threading.local()


@contextlib.contextmanager
def exclusive_use(*, wait: bool) -> Iterator[None]:
    """Lock the process. Raise UsageError when this thread has it already, or another has and `wait` is False."""
    if getattr(_HOLDER, "holds", False) or not _LOCK.acquire(blocking=wait):
        raise UsageError.build("a plan is being applied already", remedy="give all plans to one pesto.apply")
    _HOLDER.holds = True
    try:
        yield
    finally:
        _HOLDER.holds = False
        _LOCK.release()


@contextlib.contextmanager
def plan_settings() -> Iterator[None]:
    """Turn Grappler and soft placement of tf.functions off inside. Raise InputError when XLA clusters ops."""
    check_clustering()
    off = _grappler_off()
    soft = tf.config.get_soft_device_placement()
    # Grappler rewrites, merges and removes ops after tracing, and soft placement moves ops whose kernel is missing:
    # either would make the run differ from the plan without an error.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.set_soft_device_placement(False)
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": off})
        tf.config.set_soft_device_placement(soft)


def check_settings() -> None:
    """Raise UsageError when the program changed what `plan_settings` set: TensorFlow would compile the step anew."""
    check_clustering()
    # TensorFlow compiles a function again when these options change, so the check must precede each call, not only the
    # first.
    if not _grappler_off() or tf.config.get_soft_device_placement():
        raise UsageError.build(
            "Grappler or soft placement was turned on inside pesto.apply, by which ops move and lose their order",
            remedy="set tf.config before the context, or leave it",
        )


def _grappler_off() -> bool:
    return bool(tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False))
