"""The functions of an emulation in a graph of their own, run once by TensorFlow's executor."""

from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import VerificationError
from pesto.core.files.json import shown
from pesto.tf.emulate.clocks import FunctionClock
from pesto.tf.emulate.reservations import EmulatedWork
from pesto.tf.enforce.rewrite import logical_cpu_config

v1 = tf.compat.v1

_LOOK_S = 0.2
"""Seconds after which Ctrl-C is seen at the latest."""


def execute(work: EmulatedWork, clock: FunctionClock, threads: int) -> None:
    """Run each function once, on its logical CPU, when what it waits for has ended.

    A tensor of one number stands for each that an op makes and for each that arrives elsewhere. VerificationError when
    TensorFlow fails.
    """
    graph, ends = _graph(work, clock)
    config = logical_cpu_config(max(work.cpu, default=0) + 1)
    # A function that waits for its processor blocks a thread of the executor, so there must be a thread for each
    # function that can wait at once.
    config.inter_op_parallelism_threads, config.intra_op_parallelism_threads = threads, 1
    config.use_per_session_threads = True
    try:
        with v1.Session(graph=graph, config=config) as session:
            # Run the ops `ends` in a thread of its own, since Ctrl-C reaches none that is inside TensorFlow.
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(session.run, ends)
                try:
                    while not running.done():
                        wait([running], timeout=_LOOK_S)
                except BaseException:
                    clock.stop()
                    raise
            running.result()
    except tf.errors.OpError as error:
        raise VerificationError.build(
            f"the emulation failed in TensorFlow: {shown(error)}", remedy="run pesto doctor"
        ) from error


def _graph(work: EmulatedWork, clock: FunctionClock) -> tuple[Any, list[Any]]:
    """The graph, and the functions in it that nothing waits for."""
    graph = tf.Graph()
    made: list[Any] = []
    waited: set[int] = set()
    with graph.as_default():
        for k in range(work.functions):
            reads, waits = [made[p] for p in work.data[k]], [made[p].op for p in work.controls[k]]
            waited.update(work.data[k], work.controls[k])
            with graph.device(f"/device:CPU:{work.cpu[k]}"), graph.control_dependencies(waits):
                # numpy_function is stateful, so TensorFlow neither merges nor folds these ops, and each runs exactly
                # once.
                made.append(tf.numpy_function(partial(_call, clock, k), reads, tf.float64))
    return graph, [tensor.op for k, tensor in enumerate(made) if k not in waited]


def _call(clock: FunctionClock, k: int, *read: Any) -> Any:
    del read
    return np.float64(clock.pass_by(k))
