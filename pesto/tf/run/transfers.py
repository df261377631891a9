"""Transfers between TensorFlow's devices, measured: one way, both ways at once, and two of one way at once."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pesto.core.costs.calibration import LOW, SIZES, Samples
from pesto.core.costs.disturbance import DisturbanceWatch, WatchedRuns, run_undisturbed
from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.tf.session_config import disable_optimizers

v1 = tf.compat.v1

MANY, FEW = 100, 5
"""Transfers one after another in a chain: MANY, unless so many take longer than LONG_S seconds."""
LONG_S = 0.1
REPEATS = 10
"""Runs of each chain in a pass."""
_KINDS = ("there", "back", "both", "twice there", "twice back", "stays", "stays beyond", "answers")
"""Chains: one way, the other, both at once, two of one way at once; the last three are to be subtracted."""
Clock = Callable[[], float]
Taken = npt.NDArray[np.float64]


def tf_device(name: str) -> str:
    """Return TensorFlow's name of a cluster's device."""
    kind, _, number = name.partition(":")
    return f"/device:{kind.upper()}:{number}"


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that TensorFlow sees."""
    gpus = tf.config.list_physical_devices("GPU")
    return [str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)) for gpu in gpus]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePair:
    """Cluster's names of two devices to measure between."""

    one: str
    other: str
    cpus: int
    """Logical CPU devices of the session."""


def measure_transfers(
    pair: DevicePair,
    watch: DisturbanceWatch,
    passes: int,
    *,
    sizes: Sequence[int] = SIZES,
    clock: Clock = time.perf_counter,
) -> tuple[Samples, Samples, WatchedRuns[Taken]]:
    """Return samples one way and back, in `passes` undisturbed passes over all sizes, and the load of others.

    A chain passes a tensor of the one device to the other many times, each time in answer to the one before: seconds
    of a transfer are those of a link of the chain, less those of a chain that stays on the device and of the answer.
    Raise InputError where TensorFlow cannot send between the devices, and as `run_undisturbed`.
    """
    config = v1.ConfigProto(device_count={"CPU": pair.cpus}, allow_soft_placement=False)
    try:
        with v1.Session(graph=tf.Graph(), config=disable_optimizers(config)) as session, session.graph.as_default():
            chains = _TransferChains(pair, session, clock)
            few = [chains.few(size) for size in sizes]
            watched_passes = run_undisturbed(
                lambda: np.array([chains.row(s, f) for s, f in zip(sizes, few, strict=True)]), passes, watch
            )
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise InputError.build(
            f"calibrate: {pair.one} and {pair.other}: TensorFlow cannot send between them: {shown(error)}",
            remedy="name others",
        ) from error
    took = _compute_transfers(np.array(watched_passes.samples), np.array(few))
    forth, back = (
        Samples(source=near, target=far, sizes=np.array(sizes), alone=took[k], both=took[2], twice=took[3 + k])
        for k, (near, far) in enumerate(((pair.one, pair.other), (pair.other, pair.one)))
    )
    return forth, back, watched_passes


def _compute_transfers(taken: Taken, few: npt.NDArray[np.bool_]) -> Taken:
    """Return [5, sizes, passes * repeats] seconds of a transfer from [passes, sizes, 8, repeats] seconds of a link."""
    # Samples of one pass stay side by side.
    seconds = taken.transpose(2, 1, 0, 3).reshape(taken.shape[2], taken.shape[1], -1)
    transfers = np.empty((len(_KINDS) - 3, *seconds.shape[1:]))
    for short in (False, True):
        sizes = few == short
        if not sizes.any():
            continue
        # A link of the chain contains the op that sends and the wait for the answer besides the transfer. Both take as
        # long whatever the size; they are measured by chains of their own, of which a low quantile is subtracted.
        forth, back, answers = (float(np.quantile(seconds[k][sizes], LOW)) for k in range(5, 8))
        answer = max(answers - (forth + back) / 2, 0.0) / 2
        for k, rest in enumerate((forth, back, (forth + back) / 2, forth, back)):
            transfers[k, sizes] = seconds[k, sizes] - rest - answer
    return np.maximum(transfers, 0.0)


class _TransferChains:
    def __init__(self, pair: DevicePair, session: Any, clock: Clock) -> None:
        self.session, self.clock = session, clock
        with tf.device("/device:CPU:0"):
            self.size = v1.placeholder(tf.int32, [1], name="elements")
        one, other = tf_device(pair.one), tf_device(pair.other)
        self.values, fills = {}, []
        for k, device in enumerate((one, other)):
            with tf.device(device):
                name = f"held{k}"
                handle = tf.raw_ops.VarHandleOp(
                    dtype=tf.float32, shape=tf.TensorShape(None), shared_name=name, name=name
                )
                fills.append(tf.raw_ops.AssignVariableOp(resource=handle, value=tf.fill(self.size, 1.0)))
                self.values[device] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        self.fill = tf.group(*fills)
        ways = {"there": [(one, other)], "back": [(other, one)], "both": [(one, other), (other, one)],
                "twice there": [(one, other)] * 2, "twice back": [(other, one)] * 2}  # fmt: skip
        self.chains: list[Mapping[str, Any]] = []
        for hops in (MANY, FEW):
            chains = {name: tf.group(*(self._add_chain(*way, hops) for way in routes)) for name, routes in ways.items()}
            chains |= {"stays": self._add_chain(one, one, hops), "stays beyond": self._add_chain(other, other, hops)}
            chains["answers"] = self._add_chain(one, other, hops, empty=True)
            self.chains.append(chains)

    def few(self, size: int) -> bool:
        """Return True if tensors of this size are sent FEW times in a chain."""
        self.session.run(self.fill, {self.size: [size // 4]})
        seconds = [self._time(self.chains[1]["both"]) for _ in range(3)]
        return min(seconds) / FEW * MANY > LONG_S

    def row(self, size: int, few: bool) -> Taken:
        """[8, REPEATS] seconds of a link of each of `_KINDS` of chains."""
        self.session.run(self.fill, {self.size: [size // 4]})
        hops = FEW if few else MANY
        return np.array([[self._time(self.chains[few][kind]) / hops for _ in range(REPEATS)] for kind in _KINDS])

    def _time(self, op: Any) -> float:
        began = self.clock()
        self.session.run(op)
        return self.clock() - began

    def _add_chain(self, source: str, target: str, hops: int, *, empty: bool = False) -> Any:
        """Build a chain of transfers, each begun when the one before arrived; `empty`: acknowledgements only."""
        arrived: list[Any] = []
        for _ in range(hops):
            with tf.device(source), tf.control_dependencies(arrived):
                sent = tf.identity(self.values[source])
            with tf.device(target), tf.control_dependencies([sent] if empty else []):
                arrived = [tf.identity(self.values[target] if empty else sent)]
        return arrived[0].op
