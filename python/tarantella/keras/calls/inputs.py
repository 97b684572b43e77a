"""The data of a call and the arguments that say how they are read: checked, and as one `DataArguments` each."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import keras

from ..._job import log, runtime
from ...data.input import DataArguments
from .. import private


def check_size(name: str, value: Any) -> None:
    """Raises for a batch size that is no whole number (TypeError) or below 1 (ValueError)."""
    if value is None:
        return
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number or None (got {value!r})") from None
    if value < 1:
        raise ValueError(f"{name} must be at least 1 (got {value})")


def checked(
    given: DataArguments, names: tuple[str, str, str] = ("batch_size", "tnt_micro_batch_size", "tnt_distribute_dataset")
) -> DataArguments:
    """The input itself. `names` are the user's names for the two sizes and for `distributed`.

    Raises TypeError and ValueError for sizes as `check_size` does, TypeError for a `distributed` that is no bool.
    """
    batch_size, micro_batch_size, distribute = names
    check_size(batch_size, given.batch_size)
    check_size(micro_batch_size, given.micro_batch_size)
    if not isinstance(given.distributed, bool):
        raise TypeError(f"{distribute} must be True or False (got {given.distributed!r})")
    if not given.distributed and runtime.get_size() == 1:
        log.logger.info("%s=False: with one rank there is nothing to distribute", distribute)
    return given


def of_fit(given: dict[str, Any], ours: dict[str, Any]) -> tuple[DataArguments, DataArguments]:
    """The checked training and validation data of arguments of fit, which it takes out. No validation: its x is None.

    Errors as in `checked`; ValueError where the x of validation data is None.
    """
    data = _taken("training data", given, ours, (*_DATA, "shuffle", "class_weight"), steps="steps_per_epoch")
    validation = given.pop("validation_data")
    x, y, sample_weight = (None, None, None) if validation is None else keras.utils.unpack_x_y_sample_weight(validation)
    if validation is not None and x is None:
        raise ValueError("validation data is missing: x is None")
    names = "validation_batch_size", "tnt_validation_micro_batch_size", "tnt_distribute_validation_dataset"
    of_validation = DataArguments(
        "validation data",
        x,
        y,
        sample_weight,
        given.pop("validation_batch_size"),
        ours.get("validation_micro_batch_size"),
        ours.get("distribute_validation", True),
        given.pop("validation_steps"),
    )
    return data, checked(of_validation, names)


def of_evaluation(given: dict[str, Any], ours: dict[str, Any]) -> DataArguments:
    """As `of_fit`, of evaluate."""
    return _taken("evaluation data", given, ours, _DATA)


def of_prediction(given: dict[str, Any], ours: dict[str, Any]) -> DataArguments:
    """As `of_fit`, of predict."""
    return _taken("data to predict", given, ours, ("x", "batch_size"))


_DATA = ("x", "y", "sample_weight", "batch_size")


def _taken(
    what: str, given: dict[str, Any], ours: dict[str, Any], names: tuple[str, ...], steps: str = "steps"
) -> DataArguments:
    """The checked input of these arguments, which it takes out; `steps` is Keras's name for their number."""
    parts = {name: given.pop(name) for name in names}
    sizes = {"micro_batch_size": ours.get("micro_batch_size"), "distributed": ours.get("distribute", True)}
    return checked(DataArguments(what, **parts, **sizes, steps=given.pop(steps)))


def split(training: DataArguments, validation: DataArguments, part: float) -> tuple[DataArguments, DataArguments]:
    """Moves the last `part` of the training data to the validation data, as `validation_split` says."""
    rest, last = private.train_validation_split((training.x, training.y, training.sample_weight), part)
    return _with_data(training, *rest), _with_data(validation, *last)


def _with_data(given: DataArguments, x: Any, y: Any, sample_weight: Any) -> DataArguments:
    return replace(given, x=x, y=y, sample_weight=sample_weight)
