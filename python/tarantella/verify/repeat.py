"""One batch, computed on one process and again on every rank: which layer gives other numbers there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import tree

from ..keras.trials import coupling
from . import examine, record


def keep(path: Path, model: Any, data: Any) -> None:
    """Stores a batch and what the model makes of it; nothing, if the model or the batch does not allow it."""
    try:
        leaves = [_storable(leaf) for leaf in tree.flatten(data) if leaf is not None]
        titles, sketches = _computed(model, data)
    except Exception:  # examine says what keeps a model from being called
        return
    arrays = {f"leaf{i}": each for i, each in enumerate(leaves)} | {f"sketch{i}": s for i, s in enumerate(sketches)}
    np.savez(path, titles=np.array(json.dumps(titles)), **arrays)


def compare(path: Path, model: Any, data: Any) -> list[examine.Finding]:
    """The first part of the model that makes other numbers of the same ones than was stored.

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
        return [examine.Finding("rank", "the model, which calls its layers in another order or number")]
    for i, title in enumerate(titles):
        taken, given = (_near(sketches[n], found[n]) for n in (2 * i, 2 * i + 1))
        if taken and not given:
            return [examine.Finding("rank", title)]
    return []


def _computed(model: Any, data: Any) -> tuple[list[str], list[Any]]:
    """The names of all calls of layers, and of the loss; of each a sketch of what it takes and of what it gives."""
    batch = keras.utils.unpack_x_y_sample_weight(data)
    calls = coupling.recorded(model, batch[0])
    titles = [coupling.title(call.layer) for call in calls]
    sketches = [_sketch(part) for call in calls for part in (call.arguments, call.output)]
    if getattr(model, "compiled", False):
        titles.append(examine.loss_name(model))
        sketches += [_sketch(calls[-1].output), _sketch(examine.terms(model, batch, True)[:1])]
    return titles, sketches


def _sketch(structure: Any) -> Any:
    numbers = coupling.numbers(structure)
    return np.concatenate([record.sketch(each) for each in numbers]) if numbers else np.zeros(0)


def _near(one: Any, other: Any) -> bool:
    apart = np.linalg.norm(one - other) if one.shape == other.shape else np.inf
    return not apart > examine.SAME * np.linalg.norm(one)


def _storable(leaf: Any) -> Any:
    value = np.asarray(leaf)
    return value.astype(bytes) if value.dtype == object else value
