"""What layers keep of the rows that they have seen: brought together where the ranks meet and it may be read.

That of BatchNormalization, its moving statistics, and whatever a user's own layers assign: a running mean, a codebook.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ... import _exchange
from ..._job import log, runtime
from ..._job.log import listed
from .. import private, replicas, training


def average(model: Any) -> None:
    """Gives all ranks the mean of the float weights that are not trained and have drifted apart. Collective.

    Others that have drifted apart stay as they are; states of random generators are meant to differ.
    """
    progress = training.known(model)
    if progress is not None:
        progress.apart = False
    apart = replicas.differing(model.non_trainable_weights)
    floats = [v for v in apart if keras.backend.is_float_dtype(v.dtype)]
    _say(model, floats, [v for v in apart if not keras.backend.is_float_dtype(v.dtype)])
    if not floats:
        return
    everyone = runtime.context().allgather(_exchange.join(floats, np.float64), "moving statistics")
    # Where all ranks have the same number it stays, to the last bit.
    mean = np.where((everyone == everyone[0]).all(axis=0), everyone[0], everyone.mean(axis=0))
    for variable, value in zip(floats, _exchange.cut(mean, floats), strict=True):
        variable.assign(value.astype(np.asarray(variable).dtype))


def average_if_apart(model: Any) -> None:
    """As `average`, where the model has been trained since the last time. Collective."""
    progress = training.known(model)
    if progress is not None and progress.apart:
        average(model)


def _say(model: Any, floats: list[Any], others: list[Any]) -> None:
    known = {id(v) for layer in private.normalizations(model) for v in layer.weights}
    own = [v.path for v in floats if id(v) not in known]
    if own:
        log.warn_once(
            f"{listed(own)} (not trained, but assigned by layers): each rank's come from its own rows, so they differ "
            "from one process's; the ranks' mean is taken after every epoch and before evaluations"
        )
    if others:
        log.warn_once(
            f"{listed([v.path for v in others])} (assigned by layers, and no floats): each rank keeps its own, which "
            "differ from one process's; files have the master's"
        )
