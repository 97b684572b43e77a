"""Warns once about each part of a model that several ranks cannot compute exactly as one process does."""

from __future__ import annotations

from typing import Any

import keras

from .._job import log
from .._job.log import listed
from . import private
from .step import compute_loss
from .step.step import declared_reduction


def say(model: Any) -> None:
    """Logs the parts of a model that make training differ from one process."""
    normalized = [each.name for each in private.normalizations(model) if each.trainable and not each.synchronized]
    if normalized:
        log.warn_once(
            f"{listed(normalized)} (BatchNormalization): each rank normalizes its own rows, so training differs "
            "from one process; moving statistics are averaged over the ranks after every epoch; synchronized=True "
            "normalizes all rows together"
        )
    own_loss = [name for name in ("compute_loss", "train_step") if is_own(model, name)]
    if compute_loss.sees_all_rows(model):
        own_loss.remove("compute_loss")
    if own_loss and not declared_reduction(model):
        log.warn_once(
            f"{model.name} (user-defined {' and '.join(own_loss)}): its loss is assumed to be a mean over rows, which "
            "cannot be checked; declare tnt_reduction = 'mean' in the model's class, or 'sum' if it is a sum over rows"
        )
    say_of_metrics(model)
    if any(private.is_seed(v) for v in model.variables):
        log.logger.info("random layers draw different numbers on each rank, reproducible from the seed")


def say_of_metrics(model: Any) -> None:
    """Like `say`, for the metrics built so far."""
    compiled = {id(metric) for metric in private.metrics_to_compile(model)}
    own = [
        metric.name
        for metric in private.metrics_of(model)
        if id(metric) not in compiled and not private.is_of_keras(type(metric)) and not hasattr(metric, "tnt_combine")
    ]
    if own:
        log.warn_once(
            f"{listed(own)} (user-defined metrics): the states of the ranks are summed, which is right for counts and "
            "totals; otherwise declare how they combine: tnt_combine = 'max', 'min' or a function of the states"
        )


def is_own(model: Any, method: str) -> bool:
    """Whether the model's class overrides the method."""
    return getattr(type(model), method) is not getattr(keras.Model, method)
