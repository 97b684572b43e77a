"""What must hold of the accessors of `keras.private` that the numbers of a step do not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from .. import private

_X = np.array([[1.0, 0.0], [2.0, 3.0], [4.0, 0.0], [1.0, 2.0]])


def check(model: Any, logs: Any) -> None:
    """Raises NotImplementedError where a name is missing or means another.

    `model` is that of `proof`, and `logs` what a training step of it has returned.
    """
    samples = _samples(model)
    private.check(samples)
    for what, holds in _meanings(model, logs, samples).items():
        if not holds():
            raise private.refusal(f"means something else by {what}")


def _samples(model: Any) -> dict[str, Any]:
    return {
        "Model": model,
        "Layer": model,
        "BatchNormalization": model.normalization,
        "CompileLoss": private.compiled_losses(model),
        "CompileMetrics": private.compiled_parts(model)[1],
        "MeanMetricWrapper": next(each for each in private.metrics_of(model) if each.name == "error"),
        "Optimizer": model.optimizer,
        "ModelCheckpoint": keras.callbacks.ModelCheckpoint("proof.keras", save_freq=2),
        "ArrayDataAdapter": private.ArrayDataAdapter(_X, batch_size=2, shuffle=True),
        "tensor": keras.layers.Masking(name="masking", dtype=keras.config.floatx())(_X[..., None].astype("float32")),
    }


def _meanings(model: Any, logs: Any, samples: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What must hold, by what it is about."""
    own = {"own": 1.0}
    adapter, checkpoint = samples["ArrayDataAdapter"], samples["ModelCheckpoint"]
    return {
        "the layers of a model": lambda: (
            private.every_layer(model)[0] is model
            and model.normalization in private.every_layer(model, include_self=False)
            and model not in private.every_layer(model, include_self=False)
        ),
        "the results of a step": lambda: (
            private.results(model, own) is own and private.results(model, logs).keys() == logs.keys() and "loss" in logs
        ),
        "the order of results": lambda: private.in_order(model, own | {"loss": 2.0})[0] == 2.0,
        "the epoch to begin with": lambda: private.initial_epoch(model) is None,
        "what is given to compile": lambda: len(private.given_to_compile(model)) == 3,
        "a metric's arguments": lambda: private.options_of(samples["MeanMetricWrapper"]) == {"factor": 2.0},
        "an optimizer's variables": lambda: (
            [id(each) for each in private.variables_of(model.optimizer)] == [id(model.kernel), id(model.bias)]
        ),
        "a mask": lambda: (np.array(private.mask_of(samples["tensor"])) == (_X != 0)).all(),
        "the steps after which a checkpoint is saved": lambda: (
            private.saves_on_batches(checkpoint)
            and [private.would_save(checkpoint, batch) for batch in (0, 2)] == [False, True]
        ),
        "arrays": lambda: (
            private.rows_of(adapter) == 4
            and private.is_shuffled(adapter) is True
            and (np.array(keras.tree.flatten(private.arrays_of(adapter))[0]) == _X).all()
        ),
        "class weights": lambda: (
            list(np.array(private.class_weight_to_sample_weights(np.array([0, 1, 1]), {0: 1.0, 1: 2.0}))) == [1, 2, 2]
        ),
        "a split of the data": lambda: [len(part[0]) for part in private.train_validation_split((_X,), 0.25)] == [3, 1],
    }
