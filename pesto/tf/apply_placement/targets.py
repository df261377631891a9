"""Options of applying a plan, and TensorFlow's device for each device of the plan."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import tensorflow as tf

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import quoted, shown
from pesto.core.plans.plan import Plan, refuse_outdated

Devices = Mapping[str, str] | str | None
"""None: by name (gpu:1 is /device:GPU:1). "cpu": the plan's k-th device is logical CPU k, but the one that reads the
step's iterator comes first, as iterators are on CPU 0. Or a mapping by name."""
_READS_ITERATOR = re.compile(r"(^|/)IteratorGetNext(Sync)?(_\d+)?$")
_NAMED = re.compile(r"^(cpu|gpu):(\d+)$")
_PARTS = ("job", "replica", "task", "device_type", "device_index")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """The keywords of `pesto.apply`."""

    devices: Devices = None
    """TensorFlow's device for each of the plan's."""
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


def refuse_old_plan(plan: Plan) -> None:
    """Raise InputError for a plan too old to identify its ops, and what `refuse_outdated` raises."""
    if not plan.provenance.graph_layout:
        raise InputError.build(
            "the plan was written by an older version, which kept no layout of its graph", remedy="solve again"
        )
    refuse_outdated(plan)


def device_targets(plan: Plan, devices: Devices, available: Iterable[str] | None = None) -> dict[str, str]:
    """Return TensorFlow's name for each device of `plan`, in the plan's order.

    Raise UsageError for a mapping that lacks a device of the plan or has a name that TensorFlow cannot read, and,
    without a mapping, for devices whose names have no number; InputError where one is not among `available`.
    """
    names = list(dict.fromkeys(plan.lane_device))
    targets = {}
    if isinstance(devices, Mapping):
        lacking = [n for n in names if n not in devices]
        if lacking:
            raise UsageError.build(
                f"devices: the plan's {lacking[0]!r} has no entry", remedy=f"map each of {', '.join(names)}"
            )
        strange = [n for n in devices if n not in names]
        if strange:
            raise UsageError.build(
                f"devices: {quoted(strange[0])} is no device of the plan", remedy=f"it has {', '.join(names)}"
            )
        targets = {n: _parse_target(devices[n]) for n in names}
    elif devices == "cpu":
        # The device of the plan that reads the step's batch from an iterator; None where nothing does.
        reads = [i for i, name in enumerate(plan.names) if _READS_ITERATOR.search(name)]
        first = plan.lane_device[plan.schedule.device[reads[0]]] if reads else None
        numbered = sorted(names, key=lambda n: n != first)
        targets = {n: f"/device:CPU:{numbered.index(n)}" for n in names}
    elif devices not in (None, "gpu"):
        raise UsageError.build(
            f"devices: {quoted(devices)} is not known", remedy="give 'cpu', 'gpu', or a mapping by device name"
        )
    else:
        for name in names:
            match = _NAMED.match(name)
            if not match:
                raise UsageError.build(
                    f"the plan's device {shown(name)} does not say which of TensorFlow's it is",
                    remedy="give devices={name: device}",
                )
            targets[name] = f"/device:{match.group(1).upper()}:{match.group(2)}"
    if available is not None:
        check_devices_exist(targets, available)
    return targets


def _parse_target(target: str) -> str:
    try:
        spec = tf.DeviceSpec.from_string(target)
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError.build(
            f"devices: {quoted(target)} is no device name of TensorFlow", remedy="e.g. /device:GPU:0"
        ) from error
    if spec.device_type is None or spec.device_index is None:
        raise UsageError.build(f"devices: {quoted(target)} says no type and number", remedy="e.g. /device:GPU:0")
    return str(spec.to_string())


def check_devices_exist(wanted: Mapping[str, str], available: Iterable[str]) -> None:
    """Raise InputError with the first target that the program does not have."""
    have = [tf.DeviceSpec.from_string(name) for name in available]
    for name, target in wanted.items():
        if not any(covers(target, h) for h in have):
            listed = ", ".join(f"{h.device_type}:{h.device_index}" for h in have if h.device_type in ("CPU", "GPU"))
            raise InputError.build(
                f"the plan's device {shown(name)} is {target}, which this program does not have (it has {listed})",
                remedy="plan for the devices at hand, map them with devices={...}, or try devices='cpu' on logical "
                "CPUs",
            )


def covers(target: str, device: tf.DeviceSpec) -> bool:
    """Return True if `device` satisfies every part of the device name `target`."""
    want = tf.DeviceSpec.from_string(target)
    parts = ((getattr(want, part), getattr(device, part)) for part in _PARTS)
    return all(a is None or a == b for a, b in parts)
