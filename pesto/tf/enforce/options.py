"""How a plan is applied."""

from dataclasses import dataclass

from pesto.tf.enforce.targets import Devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The keywords of `pesto.apply`."""

    devices: Devices = None
    """TensorFlow's device for each of the plan's (see `pesto.tf.enforce.targets`)."""
    order: bool = True
    """Whether the plan's order is enforced; without it only the placement is."""
    trace: bool = False
    """Whether the first run of each step in a v1 session is traced, and the order in which its ops ran compared."""
