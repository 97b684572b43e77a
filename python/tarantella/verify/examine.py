"""Experiments that show why ranks, with a part of the rows each, compute other results than one process.

Those of `examine` run in one process. `keep_results` and `compare_results` compare the same batch on all ranks.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import tree

from .._backend import backend
from ..keras import hooks, private
from ..keras.step import batch_dependent, first_batch, trial
from ..keras.step.step import name_of
from . import record

SAME = 1e-4  # relative to the largest value: rounding stays below


class Finding(NamedTuple):
    """A part of the model and why its results may differ.

    Kinds: "random", "coupled" (its rows depend on each other), "coupled loss", "sum" (a loss that is a sum over rows),
    "no gradient" (only rounding), "rank" (computes other numbers on a rank than on one process), "unknown" (an
    experiment failed; the name is the error). No experiment examines the kinds "own step", "declared", "own optimizer",
    "embedding" and "own weights".
    """

    kind: str
    name: str
    layer: str = ""  # set if it can be switched off


def examine(model: Any, data: Any) -> list[Finding]:
    """Finds the parts of the model whose results depend on the distribution of rows. Changes the model's state."""
    found = _not_examined(model)
    judged = len(found)
    try:
        batch = keras.utils.unpack_x_y_sample_weight(data)
        rows = _rows(batch[0])
        if rows < 2:
            raise ValueError("the batch has a single row")
        found += _layers_and_what_they_add(model, batch[0], rows)
        found += _compiled_loss(model, batch, rows, training=len(found) == judged and not _synchronizes(model))
        found += _no_gradients(model, batch)
    except Exception as error:  # a model with a user-defined train_step may have no loss
        found.append(failed(error))
    return found


def _not_examined(model: Any) -> list[Finding]:
    """The parts of the model that no experiment examines: user-defined ones, and those with special rules."""
    name, optimizer = type(model).__name__, getattr(model, "optimizer", None)
    inner: Any = getattr(optimizer, "inner_optimizer", optimizer)
    layers = private.every_layer(model, include_self=False)
    losses = [each for each in tree.flatten(getattr(model, "loss", None)) if each is not None]
    is_own = not hooks.are_keras_own(type(model), "train_step")
    found = [Finding("own step", f"{name}.train_step")] if is_own else []
    found += [Finding("declared", name_of(each)) for each in (model, *losses) if hasattr(each, "tnt_reduction")]
    if inner is not None and not private.is_of_keras(type(inner)):
        found.append(Finding("own optimizer", type(inner).__name__))
    if type(inner) is not keras.optimizers.SGD or inner.momentum:  # else repeated rows are added up
        found += [Finding("embedding", first_batch.title(e)) for e in layers if isinstance(e, keras.layers.Embedding)]
    found += [
        Finding("own weights", first_batch.title(e))
        for e in layers
        if not private.is_of_keras(type(e)) and any(not (w.trainable or private.is_seed(w)) for w in e.variables)
    ]
    return found


def _synchronizes(model: Any) -> bool:
    """Whether layers normalize over the rows of all ranks: then results of half a batch are not comparable."""
    return any(getattr(layer, "synchronized", False) for layer in private.every_layer(model))


def failed(error: Exception) -> Finding:
    """The finding of an experiment that raised an error."""
    return Finding("unknown", f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")


def _rows(x: Any) -> int:
    return next(int(leaf.shape[0]) for leaf in tree.flatten(x) if leaf is not None)


def _layers_and_what_they_add(model: Any, x: Any, rows: int) -> list[Finding]:
    every = private.every_layer(model)
    off = {i for i, layer in enumerate(every) if getattr(layer, "synchronized", False)}
    kinds: dict[int, str] = {}
    while True:  # a layer behind one that is found can be judged once that one is off
        found = trial.Trial(model, x, True, range(len(every)), off).measure(x, rows)
        new = _with_others_of_the_kind(
            every, dict.fromkeys(found.batch_dependent, "coupled") | dict.fromkeys(found.random, "random")
        )
        kinds |= {i: kind for i, kind in new.items() if i not in off}
        more = {i for i in new if batch_dependent.switchable(every[i])} - off
        if not more:
            break
        off |= more
    findings = [
        Finding(kind, first_batch.title(every[i]), every[i].name if batch_dependent.switchable(every[i]) else "")
        for i, kind in sorted(kinds.items())
    ]
    for (layer, _), figures in found.added.items():
        findings += _of_loss(f"a loss that {first_batch.title(every[layer])} adds", figures)
    return findings


def _with_others_of_the_kind(every: list[Any], found: dict[int, str]) -> dict[int, str]:
    """Adds the other layers of the same Keras class, because a layer that is found makes their inputs incomparable."""
    classes = {type(every[i]): kind for i, kind in found.items() if private.is_of_keras(type(every[i]))}
    others = {i: classes[type(each)] for i, each in enumerate(every) if type(each) in classes and _acts(each)}
    return {i: kind for i, kind in others.items() if not isinstance(every[i], keras.Model)} | found


def _acts(layer: Any) -> bool:
    return getattr(layer, "rate", 1) != 0 and not getattr(layer, "synchronized", False)


def _of_loss(name: str, figures: trial.LossValues, sums: bool = False) -> list[Finding]:
    kinds = {trial.LossReduction.NEITHER: "coupled loss"} | ({trial.LossReduction.SUM: "sum"} if sums else {})
    return [Finding(kinds[figures.reduction()], name)] if figures.reduction() in kinds else []


def _compiled_loss(model: Any, batch: Any, rows: int, training: bool) -> list[Finding]:
    """Compares the loss of the batch with those of its two halves."""
    half = rows // 2
    parts = [batch, *(backend.rows(batch, [each], rows) for each in ((0, half), (half, rows)))]
    whole, first, second = (float(terms(model, part, training)[0]) for part in parts)
    return _of_loss(loss_name(model), trial.LossValues(whole, whole, (first, second), (half, rows - half)), sums=True)


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
    if batch_dependent.switchable(layer):
        hooks.hook(layer, "call", batch_dependent.as_in_inference)


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


def keep_results(path: Path, model: Any, data: Any) -> None:
    """Stores a batch and the results of all layers. Stores nothing if the model fails on the batch."""
    try:
        leaves = [np.asarray(leaf) for leaf in tree.flatten(data) if leaf is not None]
        stored = pickle.dumps((leaves, *_computed(model, data)))
    except Exception:  # examine reports the error
        return
    path.write_bytes(stored)


def compare_results(path: Path, model: Any, data: Any) -> list[Finding]:
    """Finds the first part of the model whose result for the stored inputs differs from the stored result.

    `data` is a batch of the same structure as the stored one.
    """
    if not path.exists():
        return []
    stored, expected, sketches = pickle.loads(path.read_bytes())
    leaves = iter(stored)
    convert = keras.ops.convert_to_tensor
    try:
        batch = tree.map_structure(lambda leaf: None if leaf is None else convert(next(leaves)), data)
        titles, found = _computed(model, batch)
    except Exception as error:
        return [failed(error)]
    if titles != expected:
        return [Finding("rank", "the model, whose layer calls differ in order or number")]
    for i, title in enumerate(titles):
        taken, given = (_near(sketches[n], found[n]) for n in (2 * i, 2 * i + 1))
        if taken and not given:
            return [Finding("rank", title)]
    return []


def _computed(model: Any, data: Any) -> tuple[list[str], list[Any]]:
    """The titles of all layer calls and of the loss, and sketches of the input and output of each."""
    batch = keras.utils.unpack_x_y_sample_weight(data)
    calls = trial.Trial(model, batch[0], True, range(len(private.every_layer(model))), ()).results(batch[0])
    titles = [first_batch.title(layer) for layer, _, _ in calls]
    sketches = [_sketch(side) for _, *sides in calls for side in sides]
    if getattr(model, "compiled", False):
        titles.append(loss_name(model))
        sketches += [_sketch(calls[-1][2]), _sketch([np.asarray(terms(model, batch, True)[0])])]
    return titles, sketches


def _sketch(values: list[Any]) -> Any:
    return np.concatenate([record.sketch(each) for each in values]) if values else np.zeros(0)


def _near(one: Any, other: Any) -> bool:
    apart = np.linalg.norm(one - other) if one.shape == other.shape else np.inf
    return not apart > SAME * np.linalg.norm(one)
