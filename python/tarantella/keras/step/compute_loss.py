"""A `compute_loss` of the user's own: it sees the inputs, labels and predictions of the global batch.

Inside it the losses given to compile are plain, while those that layers add stay this rank's share. What it keeps from
elsewhere, such as a tensor that the model's call has left in an attribute, has this rank's rows. So it is tried out
before the first step, by a trace with the real numbers of rows; where that fails on a rank, none gathers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import tree

from ..._backend import backend
from ..._job import log, runtime
from ...data.rows import share
from .. import hooks, private, training
from . import gather
from .step import current_step, declared_reduction


def is_own(model: Any) -> bool:
    """Whether the model's class has its own, of which `tnt_reduction` does not say what it computes."""
    theirs = getattr(type(model), "compute_loss", keras.Model.compute_loss)
    return theirs is not keras.Model.compute_loss and declared_reduction(model) is None


def sees_all_rows(model: Any) -> bool:
    """Whether it will see the global batch; it has been tried out."""
    return bool(_uses(model))


def _uses(model: Any) -> str:
    """What it has been found to use, since the model was compiled."""
    known = training.known(model) if is_own(model) else None
    tracker, uses = (None, "") if known is None else known.compute_loss_uses
    return uses if tracker is not None and tracker is private.loss_tracker(model) else ""


def install(model: Any) -> None:
    """Hooks it. Idempotent."""
    if is_own(model):
        hooks.hook(model, "compute_loss", functools.partial(_on_all_rows, model))


def try_out(model: Any, data: Any, rows: int | None) -> None:
    """Finds out whether it works with more rows than the model's call. Collective, once for each compiled model.

    `data` are the types of a batch, `rows` those of a global batch, None where they are not known.
    """
    found, tracker = training.of(model), private.loss_tracker(model)
    if not is_own(model) or found.compute_loss_uses[0] is tracker:
        return
    uses = reason = ""
    try:
        uses = _traced(model, data, rows or _ROWS * runtime.get_size())
    except Exception as error:  # whatever user code raises
        text = str(error).splitlines()[0] if str(error) else ""
        reason = f"it fails on them ({type(error).__name__}: {text})"
    failed = runtime.context().allgather(np.array([bool(reason)], np.int64), "compute_loss").ravel()
    found.compute_loss_uses = tracker, "" if failed.any() else uses
    if failed.any():
        first = int(np.flatnonzero(failed)[0])
        reason = reason or f"it fails on them on rank {first}"
        log.warn_once(
            f"compute_loss of {model.name} does not see the rows of all ranks: {reason}. What it computes counts as a "
            "mean over rows; tnt_reduction = 'mean' or 'sum' in the model's class says what it is"
        )


_ROWS = 2  # of each rank, where those of a batch are not known
_ARGUMENTS = ("x", "y", "y_pred", "sample_weight")
# What `_traced` returns.
_WITHOUT_X, _WITH_X = "without x", "with x"


def _traced(model: Any, data: Any, rows: int) -> str:
    """Traces it for the real numbers of rows, which may not fit, and for unknown ones, whose use is seen."""
    used: list[bool] = []
    function = hooks.original(model, "compute_loss")
    takes_training = "training" in inspect.signature(function).parameters

    def step(data: Any, rows: int | None) -> None:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        predicted, added = model(x, training=True), list(model.losses)
        whole = tree.map_structure(functools.partial(_stand_in, rows=rows), (y, predicted, sample_weight))
        inputs = tree.map_structure(functools.partial(_stand_in, rows=None), x)
        for trains in (True, False):
            options = {"training": trains} if takes_training else {}
            loss = function(x=inputs, y=whole[0], y_pred=whole[1], sample_weight=whole[2], **options)
            if backend.comes_from_inputs(loss, but=[*added, *model.losses]):
                raise ValueError("it uses what the model's call has left, which has this rank's rows")
        used.extend(backend.is_used(each) for each in tree.flatten(inputs) if each is not None)

    mine = max(1, share(rows, runtime.get_rank(), runtime.get_size())[1])
    for own, whole in ((mine, rows), (None, None)):
        backend.trace(functools.partial(step, rows=whole), data, rows=own)
    return _WITH_X if any(used) else _WITHOUT_X


def _stand_in(leaf: Any, rows: int | None) -> Any:
    if leaf is None:
        return None
    made = backend.stand_in(leaf, rows)
    if private.mask_of(leaf) is not None:
        private.set_mask(made, backend.stand_in(private.mask_of(leaf), rows))
    return made


def _on_all_rows(model: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original).parameters.values()
    theirs = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    order = [*theirs, *_ARGUMENTS[len(theirs) :]]  # what follows goes into *args

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        step, uses = current_step(), _uses(model)
        if step is None or not uses or step.has_all_rows:
            return original(*args, **kwargs)
        names = _ARGUMENTS if uses == _WITH_X else _ARGUMENTS[1:]
        given = dict(zip(order, args, strict=False)) | kwargs
        own = {name: given[name] for name in names if name in given}
        rows = gather.of_all_ranks(step, f"compute_loss of {model.name}", own)
        if rows is None:
            return original(*args, **kwargs)
        given |= rows.structure
        with step.on_all_rows():
            places = [given.pop(name) for name, _ in zip(order, args, strict=False)]
            return original(*places, *args[len(order) :], **given)

    return compute_loss
