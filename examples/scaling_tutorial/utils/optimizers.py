"""The optimizer, with a learning rate that grows with the number of ranks."""

from __future__ import annotations

import inspect
import math
from typing import Any

import keras

import tarantella.horovod.keras as hvd

from .errors import refused

OPTIMIZERS = {
    name: value
    for name, value in vars(keras.optimizers).items()
    if inspect.isclass(value)
    and issubclass(value, keras.optimizers.Optimizer)
    and value is not keras.optimizers.Optimizer
}
SCALINGS = {"linear": lambda n_ranks: n_ranks, "sqrt": math.sqrt, "none": lambda n_ranks: 1}


def scale_lr(lr: float, lr_scaling: str, n_ranks: int) -> float:
    """Returns the learning rate for a batch that is `n_ranks` times as large: `lr` times N, the root of N, or 1."""
    return lr * SCALINGS[lr_scaling](n_ranks)


def get_optimizer(options: dict[str, Any], lr: float, distributed: bool) -> keras.optimizers.Optimizer:
    """Returns the Keras optimizer `options["name"]` with learning rate `lr`. Other options are Keras's arguments.

    distributed: it averages the gradients of all ranks. Needs `hvd.init`. Raises InputError for values that Keras
    refuses.
    """
    ours = ("name", "lr", "lr_scaling", "lr_warmup_epochs")
    arguments = {key: value for key, value in options.items() if key not in ours}
    with refused("optimizer", arguments):
        optimizer, tried = (OPTIMIZERS[options["name"]](learning_rate=lr, **arguments) for _ in range(2))
        zeros = keras.ops.zeros((2, 2))
        tried.apply([zeros], [keras.Variable(zeros)])  # Keras reads some values in the first step only
    return hvd.DistributedOptimizer(optimizer) if distributed else optimizer
