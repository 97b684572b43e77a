"""Averages the state of layers over the ranks at the ends of epochs, and wherever else it may be read.

Such state is the moving statistics of BatchNormalization, and the variables that user-defined layers assign: a running
mean, a codebook.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ... import _exchange
from ..._job import log, runtime, timeline
from ..._job.log import abbreviated
from .. import private, replicas, training


@timeline.part("average layer state")
def average(model: Any) -> None:
    """Sets the float weights that are not trained and differ between ranks to their mean. Collective.

    Weights of other dtypes are not changed. States of random generators differ on purpose.
    """
    progress = training.known(model)
    if progress is not None:
        progress.apart = False
    average_of(model, replicas.differing(model.non_trainable_weights))


def average_of(model: Any, apart: list[Any]) -> list[Any]:
    """As `average`, of the variables `apart`, which are known to differ. Returns those now equal. Collective."""
    floats = [v for v in apart if keras.backend.is_float_dtype(v.dtype)]
    _say(model, floats, [v for v in apart if not keras.backend.is_float_dtype(v.dtype)])
    if not floats:
        return []
    everyone = runtime.context().allgather(_exchange.flatten(floats, np.float64), "moving statistics")
    # A number that is the same on all ranks stays the same to the last bit.
    mean = np.where((everyone == everyone[0]).all(axis=0), everyone[0], everyone.mean(axis=0))
    replicas.assign(floats, _exchange.unflatten(mean, floats))
    return floats


def _say(model: Any, floats: list[Any], others: list[Any]) -> None:
    known = {id(v) for layer in private.normalizations(model) for v in layer.weights}
    own = [v.path for v in floats if id(v) not in known]
    if own:
        log.warn_once(
            f"{abbreviated(own)} (not trained, but assigned by layers): each rank computes them from its own rows, so "
            "they differ from one process; they are averaged over the ranks after every epoch and before evaluations"
        )
    if others:
        log.warn_once(
            f"{abbreviated([v.path for v in others])} (assigned by layers, not floats): each rank keeps its own, which "
            "differ from one process; saved files contain those of the master"
        )
