"""Experiments on one batch in one process that tell why ranks, with a part of the rows each, go other ways."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import tree

from .._backend import tensorflow as backend
from ..keras import hooks
from ..keras.trials import coupling

SAME = 1e-4  # relative to the largest value: rounding stays below


class Finding(NamedTuple):
    """A part of the model that is "random", "coupled" (over rows), "coupled loss", "sum" or of "no gradient".

    A part of kind "rank" gives other numbers on a rank than on one process.

    "unknown" is the rest, if an experiment failed; the name says why.
    """

    kind: str
    name: str
    layer: str = ""  # that can be switched off


def examine(model: Any, data: Any) -> list[Finding]:
    """What on this batch makes training depend on how rows are dealt out. Runs eagerly, changes state."""
    found: list[Finding] = []
    try:
        batch = keras.utils.unpack_x_y_sample_weight(data)
        rows = _rows(batch[0])
        if rows < 2:
            raise ValueError("the batch has a single row")
        half, rest = slice(0, rows // 2), slice(rows // 2, rows)
        found += _layers(model, batch[0], rows, half)
        parts = [batch, coupling.cut(batch, rows, half), coupling.cut(batch, rows, rest)]
        found += _losses(model, parts, not found)
        found += _no_gradients(model, batch)
    except Exception as error:  # a model with a train_step of its own may have no loss to ask for
        found.append(failed(error))
    return found


def failed(error: Exception) -> Finding:
    """What an experiment that raised has found."""
    return Finding("unknown", f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")


def _rows(x: Any) -> int:
    return next(len(leaf) for leaf in tree.flatten(x) if leaf is not None)


def _layers(model: Any, x: Any, rows: int, half: slice) -> list[Finding]:
    """Layers that give other numbers when asked again, or when they see half of the rows."""
    found = coupling.suspects(coupling.recorded(model, x), rows, half, SAME)
    return [
        Finding(kind, coupling.title(layer), layer.name if coupling.switchable(layer) else "")
        for layer, kind in found
        if not getattr(layer, "synchronized", False)
    ]


def _losses(model: Any, batches: list[Any], training: bool) -> list[Finding]:
    """Terms of the loss that are no mean over rows: the whole batch's against those of its halves."""
    whole, first, second = ([*map(float, terms(model, batch, training))] for batch in batches)
    sizes = [_rows(x) for x, _, _ in batches]
    found = []
    for i, (w, a, b) in enumerate(zip(whole, first, second, strict=True)):
        name = loss_name(model) if i == 0 else f"add_loss number {i}"
        if not _near(w, (a * sizes[1] + b * sizes[2]) / sizes[0]):
            found.append(Finding("sum" if _near(w, a + b) else "coupled loss", name))
    return found


def _no_gradients(model: Any, batch: Any) -> list[Finding]:
    """Weights on which the loss does not depend, but for rounding (a key's bias in attention)."""
    weights = model.trainable_variables
    largest = [
        0.0 if g is None else float(keras.ops.max(keras.ops.abs(g)))
        for g in backend.gradients(lambda: sum(terms(model, batch, True)), weights)
    ]
    rounding = 100 * float(np.finfo(np.float64 if weights[0].dtype == "float64" else np.float32).eps)
    limit = rounding * max(largest, default=0.0)
    return [Finding("no gradient", v.path) for v, most in zip(weights, largest, strict=True) if most <= limit]


def switch_off(layer: Any) -> None:
    """Makes a layer act as it does outside of training, for the rest of this process."""
    if coupling.switchable(layer):
        hooks.hook(layer, "call", coupling.as_in_inference)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= SAME * max(abs(one), abs(other))


def terms(model: Any, batch: Any, training: bool) -> list[Any]:
    """The compiled loss, then all others: add_loss and regularizers."""
    x, y, weights = batch
    outputs = model(x, training=training)
    others = [keras.ops.sum(loss) for loss in model.losses]
    total = model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weights)
    return [total - sum(others), *others]


def loss_name(model: Any) -> str:
    loss = getattr(model, "loss", None)
    name = getattr(loss, "name", None) or getattr(loss, "__name__", None) or loss
    return f"the loss {name!r}" if isinstance(name, str) else "the compiled loss"
