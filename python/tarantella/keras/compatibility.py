"""Whether this Keras has all private names that several ranks need, and whether it is one that was tested."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np

from .._job import log
from . import private


@functools.cache
def check() -> None:
    """Raises NotImplementedError where a private name is missing; a WARNING names a Keras newer than those tested.

    Once a process. Milliseconds; no rank waits.
    """
    try:
        owners = _samples()
    except AttributeError as missing:
        raise _refusal(str(missing)) from missing
    for owner, name, seen in (*private.NAMES, *private.FUNCTIONS):
        others = [each.name for each in private.NAMES if each.owner == owner and each.seen != private.KNOWN]
        alternatives = [name] if seen == private.KNOWN else others
        if not any(hasattr(owners[owner], each) for each in alternatives):
            raise _refusal(f"no {' or '.join(alternatives)} of {owner}")
    newest = tuple(map(int, private.KNOWN.rpartition(" ")[2].split(".")))
    if private.version() > newest:
        log.warn_once(
            f"Keras {keras.__version__} is newer than those that were tested ({private.KNOWN}); to compare your script "
            "with one process, run it by tarantella verify"
        )


def _refusal(reason: str) -> NotImplementedError:
    return NotImplementedError(
        f"Keras {keras.__version__} is not as known ({reason}), so several ranks would train otherwise than one "
        f"process; install a Keras known to work: {private.KNOWN}"
    )


def _samples() -> dict[str, Any]:
    """The owners of names: modules, and an object of each kind. Objects have names: automatic ones are counted."""
    metric = keras.metrics.MeanMetricWrapper(keras.losses.mean_squared_error, name="names")
    model = keras.Sequential([keras.Input((1,), name="names")], name="names")
    model.compile(keras.optimizers.SGD(name="names"), keras.losses.MeanSquaredError(name="names"), metrics=[metric])
    losses = private.compiled_losses(model)
    losses.build(np.zeros((1, 1)), np.zeros((1, 1)))  # Keras 3.5 and 3.6 have no list of losses before
    return {
        "Model": model,
        "Layer": model,
        "BatchNormalization": keras.layers.BatchNormalization(name="names"),
        "CompileLoss": losses,
        "CompileMetrics": private.compiled_parts(model)[1],
        "MeanMetricWrapper": metric,
        "Optimizer": model.optimizer,
        "ModelCheckpoint": keras.callbacks.ModelCheckpoint("names.keras", save_freq=2),
        "ArrayDataAdapter": private.ArrayDataAdapter(np.zeros((2, 1)), batch_size=1),
        **{name: getattr(private, name) for name in {each.owner for each in private.FUNCTIONS}},
    }
