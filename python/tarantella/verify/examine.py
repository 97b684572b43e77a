"""Experiments on one batch in one process that show why ranks, each with a part of the rows, compute other results."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import tree

from .._backend import backend
from ..keras import hooks
from ..keras.trials import coupling, reduction

SAME = 1e-4  # relative to the largest value: rounding stays below


class Finding(NamedTuple):
    """A part of the model and why its results may differ.

    Kinds: "random", "coupled" (its rows depend on each other), "coupled loss", "sum" (a loss that is a sum over rows),
    "no gradient" (only rounding), "rank" (computes other numbers on a rank than on one process), and "unknown" (an
    experiment failed; the name says why).
    """

    kind: str
    name: str
    layer: str = ""  # set if it can be switched off


def examine(model: Any, data: Any) -> list[Finding]:
    """Finds the parts of the model whose results depend on the distribution of rows. Runs eagerly, changes state."""
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
    except Exception as error:  # a model with a user-defined train_step may have no loss
        found.append(failed(error))
    return found


def failed(error: Exception) -> Finding:
    """The finding of an experiment that raised an error."""
    return Finding("unknown", f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")


def _rows(x: Any) -> int:
    return next(len(leaf) for leaf in tree.flatten(x) if leaf is not None)


def _layers(model: Any, x: Any, rows: int, half: slice) -> list[Finding]:
    """Layers whose output changes when they are called again, or on half of the rows."""
    found = coupling.suspects(coupling.recorded(model, x), rows, half, SAME)
    return [
        Finding(kind, coupling.title(layer), layer.name if coupling.switchable(layer) else "")
        for layer, kind in found
        if not getattr(layer, "synchronized", False)
    ]


def _losses(model: Any, batches: list[Any], training: bool) -> list[Finding]:
    """Terms of the loss that are not a mean over rows: compares the batch with its two halves."""
    whole, first, second = ([*map(float, terms(model, batch, training))] for batch in batches)
    rows = _rows(batches[1][0]), _rows(batches[2][0])
    found = []
    for i, (w, a, b) in enumerate(zip(whole, first, second, strict=True)):
        name = loss_name(model) if i == 0 else f"add_loss number {i}"
        verdict = reduction.judge(w, (a, b), rows, SAME)
        if verdict.certainty is not reduction.Certainty.EXACT and (w, a, b) != (0, 0, 0):
            found.append(Finding("coupled loss", name))
        elif verdict.is_sum:
            found.append(Finding("sum", name))
    return found


def _no_gradients(model: Any, batch: Any) -> list[Finding]:
    """Weights whose gradient is only rounding, such as the bias of the keys in attention."""
    weights = model.trainable_variables
    largest = [
        0.0 if g is None else float(keras.ops.max(keras.ops.abs(g)))
        for g in backend.gradients(lambda: sum(terms(model, batch, True)), weights)
    ]
    rounding = 100 * float(np.finfo(np.float64 if weights[0].dtype == "float64" else np.float32).eps)
    limit = rounding * max(largest, default=0.0)
    return [Finding("no gradient", v.path) for v, most in zip(weights, largest, strict=True) if most <= limit]


def switch_off(layer: Any) -> None:
    """Puts a layer into inference mode for the rest of this process."""
    if coupling.switchable(layer):
        hooks.hook(layer, "call", coupling.as_in_inference)


def terms(model: Any, batch: Any, training: bool) -> list[Any]:
    """The compiled loss, then the others: add_loss and regularizers."""
    x, y, weights = batch
    outputs = model(x, training=training)
    others = [keras.ops.sum(loss) for loss in model.losses]
    total = model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weights)
    return [total - sum(others), *others]


def loss_name(model: Any) -> str:
    loss = getattr(model, "loss", None)
    name = getattr(loss, "name", None) or getattr(loss, "__name__", None) or loss
    return f"the loss {name!r}" if isinstance(name, str) else "the compiled loss"
