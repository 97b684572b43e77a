"""The cores and the GPU that a rank trains on."""

from __future__ import annotations

import os

import tensorflow as tf

from .errors import InputError


def configure_device(
    intra_threads: int | None = None, inter_threads: int | None = None, gpu: int | None = None
) -> None:
    """Sets TensorFlow's threads and its GPU. Call it before anything is computed.

    intra_threads: threads that share one operation. inter_threads: operations that run at a time. TensorFlow chooses
    what is None. gpu: the number of the only GPU to use; the launcher already gives each rank one of its own. Raises
    InputError if there are GPUs, but not that one.
    """
    if intra_threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(intra_threads)
    if inter_threads is not None:
        tf.config.threading.set_inter_op_parallelism_threads(inter_threads)
    gpus = tf.config.list_physical_devices("GPU")
    if gpu is not None and gpus:
        if gpu not in range(len(gpus)):
            raise InputError(f"device.gpu is {gpu}, but this process sees {len(gpus)} GPUs, numbered from 0")
        gpus = [gpus[gpu]]
        tf.config.set_visible_devices(gpus, "GPU")
    for each in gpus:
        tf.config.experimental.set_memory_growth(each, True)


def describe_device() -> str:
    """Returns the name of the GPU, or the number of this process's cores: "CPU (4 cores)"."""
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        return ", ".join(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus)
    cores = len(os.sched_getaffinity(0))
    return f"CPU ({cores} core{'s' if cores > 1 else ''})"
