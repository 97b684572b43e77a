"""The data of a call: its arguments, checked, as `DataArguments`; its predictions, in the order of the data."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from keras import tree
from numpy.typing import NDArray

from .. import _exchange
from .._job import log, runtime
from ..data.input import DataArguments
from . import private

_DATA = ("x", "y", "sample_weight", "batch_size")


def of_call(
    what: str, given: dict[str, Any], ours: dict[str, Any], names: tuple[str, ...] = _DATA, steps: str = "steps"
) -> DataArguments:
    """The checked input of these arguments, which it takes out; `steps` is Keras's name for their number."""
    parts = {name: given.pop(name) for name in names}
    sizes = {"micro_batch_size": ours.get("micro_batch_size"), "distributed": ours.get("distribute", True)}
    found = DataArguments(what, **parts, **sizes, steps=given.pop(steps))
    return _checked(found, "batch_size", "tnt_micro_batch_size", "tnt_distribute_dataset")


def of_fit(given: dict[str, Any], ours: dict[str, Any]) -> tuple[DataArguments, DataArguments]:
    """The checked training and validation data of arguments of fit, which it takes out. No validation: its x is None.

    Errors as in `_checked`; ValueError where the x of validation data is None.
    """
    data = of_call("training data", given, ours, (*_DATA, "shuffle", "class_weight"), steps="steps_per_epoch")
    validation = given.pop("validation_data")
    x, y, sample_weight = (None, None, None) if validation is None else keras.utils.unpack_x_y_sample_weight(validation)
    if validation is not None and x is None:
        raise ValueError("validation data is missing: x is None")
    sizes = given.pop("validation_batch_size"), ours.get("validation_micro_batch_size")
    distributed, steps = ours.get("distribute_validation", True), given.pop("validation_steps")
    found = DataArguments("validation data", x, y, sample_weight, *sizes, distributed, steps)
    names = "validation_batch_size", "tnt_validation_micro_batch_size", "tnt_distribute_validation_dataset"
    return data, _checked(found, *names)


def _checked(given: DataArguments, batch_size: str, micro_batch_size: str, distribute: str) -> DataArguments:
    """The input itself. The names are the user's for the two sizes and for `distributed`.

    Raises TypeError for a size that is no whole number, or a `distributed` that is no bool, ValueError for a size below
    1.
    """
    for name, value in ((batch_size, given.batch_size), (micro_batch_size, given.micro_batch_size)):
        if value is None:
            continue
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"{name} must be a whole number or None (got {value!r})") from None
        if number < 1:
            raise ValueError(f"{name} must be at least 1 (got {number})")
    if not isinstance(given.distributed, bool):
        raise TypeError(f"{distribute} must be True or False (got {given.distributed!r})")
    if not given.distributed and runtime.get_size() == 1:
        log.logger.info("%s=False: with one rank there is nothing to distribute", distribute)
    return given


def on_all_ranks(what: str, given: bool | None, older: bool | None, *, default: bool) -> bool:
    """The value of `tnt_…_all_ranks`, or of its older name `tnt_…_all_devices`. ValueError if they differ."""
    if given is not None and older is not None and given != older:
        raise ValueError(
            f"tnt_{what}_all_ranks={given} contradicts tnt_{what}_all_devices={older}, its older name; pass only one"
        )
    return next((each for each in (given, older) if each is not None), default)


def split(training: DataArguments, validation: DataArguments, part: float) -> tuple[DataArguments, DataArguments]:
    """Moves the last `part` of the training data to the validation data, as `validation_split` says."""
    names = "x", "y", "sample_weight"
    rest, last = private.array_slicing.train_validation_split(tuple(getattr(training, name) for name in names), part)
    return (
        replace(training, **dict(zip(names, rest, strict=True))),
        replace(validation, **dict(zip(names, last, strict=True))),
    )


def in_order(outputs: Any, positions: NDArray[np.int64], lengths: NDArray[np.int64], everywhere: bool) -> Any:
    """All rows of all ranks, for any structure of arrays, or None but on the master. Collective.

    Where not `everywhere`, the other ranks keep none of them meanwhile. `positions` has one entry a row of this rank,
    -1 for rows that only fill up; they are dropped. `lengths` has a row for each batch: the rows that it has, and the
    length of each output for it. An output may have several rows for each, one after the other.

    Raises ValueError on all ranks where another number of rows was returned on any.
    """
    leaves, times = tree.flatten(outputs), _times(lengths)
    only = None if everywhere else runtime.get_master_rank()
    places = _gathered(positions, only)
    kept = np.flatnonzero(places >= 0)
    order = kept[np.argsort(places[kept], kind="stable")]
    ordered = []
    for leaf, n in zip(leaves, times, strict=True):
        rows = _gathered(leaf, only)
        ordered.append(rows[(order[:, None] * n + np.arange(n)).ravel()] if len(rows) else rows)
    return tree.pack_sequence_as(outputs, ordered) if only in (None, runtime.get_rank()) else None


def _times(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows each output has for each row. Collective."""
    rows, found = lengths[:, :1], lengths[:, 1:]
    times = found[0] // rows[0]
    fits = (found == times * rows) & ((times > 0) | (found == 0))
    batch, output = np.argwhere(~fits)[0] if not fits.all() else (0, 0)
    local = np.array([fits.all(), rows[batch, 0], found[batch, output], *times], np.int64)
    everyone = runtime.context().allgather(local, "lengths of predictions")
    wrong = np.flatnonzero(everyone[:, 0] == 0)
    if wrong.size == 0:
        wrong = np.flatnonzero((everyone[:, 3:] != everyone[0, 3:]).any(axis=1))
    if wrong.size:
        _, rows_of_batch, returned = everyone[wrong[0], :3]
        raise ValueError(
            f"predict_step returned {returned} rows for the {rows_of_batch} rows of a batch on rank {wrong[0]}; "
            "several ranks need as many predictions for every row; return these, or predict on one rank alone: "
            "tnt_distribute_dataset=False"
        )
    return np.maximum(times, 1)


def _gathered(array: Any, only: int | None) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise NotImplementedError(
            f"predictions of the type {type(array).__name__} cannot be gathered from several ranks yet; "
            "return dense numbers of one shape"
        )
    return _exchange.rows(runtime.context(), array, "predictions", only)
