"""Computes one batch on one process and on every rank to find the layer with other results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import tree

from ..keras import private
from ..keras.step import first_batch, trial
from . import examine, record


def keep(path: Path, model: Any, data: Any) -> None:
    """Stores a batch and the results of all layers. Stores nothing if the model cannot be called on it."""
    try:
        leaves = [_storable(leaf) for leaf in tree.flatten(data) if leaf is not None]
        titles, sketches = _computed(model, data)
    except Exception:  # examine reports why a model cannot be called
        return
    arrays = {f"leaf{i}": each for i, each in enumerate(leaves)} | {f"sketch{i}": s for i, s in enumerate(sketches)}
    np.savez(path, titles=np.array(json.dumps(titles)), **arrays)


def compare(path: Path, model: Any, data: Any) -> list[examine.Finding]:
    """Finds the first part of the model whose result for the stored inputs differs from the stored result.

    `data` is a batch of the same structure as the stored one.
    """
    if not path.exists():
        return []
    with np.load(path) as stored:
        leaves = iter([stored[name] for name in stored.files if name.startswith("leaf")])
        sketches = [stored[name] for name in stored.files if name.startswith("sketch")]
        expected = json.loads(str(stored["titles"]))
    batch = tree.map_structure(lambda leaf: None if leaf is None else keras.ops.convert_to_tensor(next(leaves)), data)
    try:
        titles, found = _computed(model, batch)
    except Exception as error:
        return [examine.failed(error)]
    if titles != expected:
        return [examine.Finding("rank", "the model, whose layer calls differ in order or number")]
    for i, title in enumerate(titles):
        taken, given = (_near(sketches[n], found[n]) for n in (2 * i, 2 * i + 1))
        if taken and not given:
            return [examine.Finding("rank", title)]
    return []


def _computed(model: Any, data: Any) -> tuple[list[str], list[Any]]:
    """The titles of all layer calls and of the loss; for each, sketches of its input and of its output."""
    batch = keras.utils.unpack_x_y_sample_weight(data)
    calls = trial.Trial(model, batch[0], True, range(len(private.every_layer(model))), ()).results(batch[0])
    titles = [first_batch.title(layer) for layer, _, _ in calls]
    sketches = [_sketch(side) for _, *sides in calls for side in sides]
    if getattr(model, "compiled", False):
        titles.append(examine.loss_name(model))
        sketches += [_sketch(calls[-1][2]), _sketch([np.asarray(examine.terms(model, batch, True)[0])])]
    return titles, sketches


def _sketch(values: list[Any]) -> Any:
    return np.concatenate([record.sketch(each) for each in values]) if values else np.zeros(0)


def _near(one: Any, other: Any) -> bool:
    apart = np.linalg.norm(one - other) if one.shape == other.shape else np.inf
    return not apart > examine.SAME * np.linalg.norm(one)


def _storable(leaf: Any) -> Any:
    value = np.asarray(leaf)
    return value.astype(bytes) if value.dtype == object else value
