"""Logical CPUs: several devices of one process, to try a plan without GPUs."""

import tensorflow as tf

from pesto.errors import UsageError


def logical_cpus(count: int) -> None:
    """Split the host's CPU into `count` logical devices; call it before TensorFlow runs anything.

    UsageError when TensorFlow has started with another number of them.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) != count:
            raise UsageError(
                "logical_cpus: TensorFlow has started already - call it right after the imports, before any op runs"
            ) from error
