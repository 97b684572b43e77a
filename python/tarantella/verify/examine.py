"""Experiments on one batch in one process that tell why ranks, with a part of the rows each, go other ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import tree

from .. import _log

_SAME = 1e-4  # relative to the largest value: rounding stays below

# A finding: what is "random", "coupled" or "sum", and its name.
Finding = tuple[str, str]


def examine(model: Any, data: Any) -> list[Finding]:
    """What on this batch makes training depend on how rows are dealt out. Runs eagerly, changes state."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    rows = next(len(leaf) for leaf in tree.flatten(x) if leaf is not None)
    if rows < 2:
        return []
    halves = slice(0, rows // 2), slice(rows // 2, rows)
    found = _layers(model, x, rows, halves[0])
    try:
        found += _losses(model, [_cut((x, y, weights), rows, part) for part in (slice(None), *halves)], not found)
    except Exception as error:  # a model with a train_step of its own may have no loss to ask for
        _log.logger.info("the loss could not be examined: %s", error)
    return found


def _cut(structure: Any, rows: int, part: slice) -> Any:
    """The rows `part` of every tensor that has `rows` of them."""
    return tree.map_structure(
        lambda leaf: leaf[part] if getattr(leaf, "shape", None) and leaf.shape[0] == rows else leaf, structure
    )


def _differ(one: Any, other: Any) -> bool:
    pairs = list(zip(_numbers(one), _numbers(other), strict=True))
    return any(a.shape == b.shape and np.abs(a - b).max(initial=0) > _SAME * np.abs(a).max(initial=0) for a, b in pairs)


def _numbers(structure: Any) -> list[Any]:
    leaves = [np.asarray(leaf) for leaf in tree.flatten(structure) if hasattr(leaf, "shape")]
    return [leaf.astype(np.float64) for leaf in leaves if leaf.dtype.kind in "fiub"]


def _layers(model: Any, x: Any, rows: int, half: slice) -> list[Finding]:
    """Layers that give other numbers when asked again, or when they see half of the rows."""
    calls: list[tuple[Any, Callable[..., Any], Any, Any]] = []
    originals = [(layer, layer.call) for layer in model._flatten_layers()]
    for layer, original in originals:
        layer.call = _recorded(layer, original, calls)
    model(x, training=True)
    for layer, original in originals:
        layer.call = original
    found: dict[int, tuple[Any, str]] = {}
    for layer, original, (args, kwargs), output in calls:
        kind = _kind(original, args, kwargs, output, rows, half)
        if kind and not getattr(layer, "synchronized", False):
            found.setdefault(id(layer), (layer, kind))
    return [
        (kind, f"{type(layer).__name__} {layer.name!r}")
        for layer, kind in found.values()
        if not any(id(inner) in found for inner in layer._flatten_layers(include_self=False))
    ]


def _recorded(layer: Any, original: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        calls.append((layer, original, (args, kwargs), output))
        return output

    return call


def _kind(original: Callable[..., Any], args: Any, kwargs: Any, output: Any, rows: int, half: slice) -> str | None:
    if _differ(output, original(*args, **kwargs)):
        return "random"
    args, kwargs = _cut((args, kwargs), rows, half)
    try:
        part = original(*args, **kwargs)
    except Exception:  # a layer for batches of one size: nothing can be said
        return None
    return "coupled" if _differ(_cut(output, rows, half), part) else None


def _losses(model: Any, batches: list[Any], training: bool) -> list[Finding]:
    """Terms of the loss that are no mean over rows: the whole batch's against those of its halves."""
    whole, first, second = ([*map(float, _terms(model, *batch, training))] for batch in batches)
    sizes = [next(len(leaf) for leaf in tree.flatten(batch[0]) if leaf is not None) for batch in batches]
    found = []
    for i, (w, a, b) in enumerate(zip(whole, first, second, strict=True)):
        name = _loss_name(model) if i == 0 else f"add_loss number {i}"
        if not _near(w, (a * sizes[1] + b * sizes[2]) / sizes[0]):
            found.append(("sum" if _near(w, a + b) else "coupled loss", name))
    return found


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME * max(abs(one), abs(other))


def _terms(model: Any, x: Any, y: Any, weights: Any, training: bool) -> list[Any]:
    """The compiled loss, then all others: add_loss and regularizers."""
    outputs = model(x, training=training)
    others = [keras.ops.sum(loss) for loss in model.losses]
    total = model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weights)
    return [total - sum(others), *others]


def _loss_name(model: Any) -> str:
    loss = getattr(model, "loss", None)
    name = getattr(loss, "name", None) or getattr(loss, "__name__", None) or loss
    return f"the loss {name!r}" if isinstance(name, str) else "the compiled loss"
