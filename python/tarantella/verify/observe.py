"""Runs inside the user's script: records the input and results of each training step, and ends the script after some.

Active only in processes that `tarantella verify` has started (TNT_VERIFY is their folder).
"""

from __future__ import annotations

import functools
import json
import logging
import os
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import tree

from .._backend.steps import in_fresh_thread
from .._job import log
from .._job.environment import layout
from ..data import tf_data
from ..data.rows import has_rows
from ..keras import fit, hooks, model_state, patches, private, start
from ..keras.step.step import current_step
from . import examine, record

_EXAMINED = 3  # batches
_PRECISIONS = ("bfloat16", "float16", "float32", "float64")  # coarsest first


def install(wrapper: type) -> None:
    """Observes every `tarantella.Model`."""
    folder = Path(os.environ["TNT_VERIFY"])
    plan = json.loads((folder / "plan.json").read_text())
    if keras.backend.backend() != "tensorflow":
        raise NotImplementedError(
            "tarantella verify supports only Keras's tensorflow backend; set KERAS_BACKEND=tensorflow"
        )
    if layout().rank == 0:  # on behalf of all ranks
        handler = logging.FileHandler(folder / record.WARNINGS, encoding="utf-8", delay=True)
        handler.setLevel(logging.WARNING)
        log.logger.addHandler(handler)
    watch = Watch(folder, plan)
    kind: Any = wrapper
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        watch.data(self.keras_model)

    kind.__init__ = init
    patches.REPLACEMENTS.update(fit=_fit(fit.fit, watch), train_on_batch=_train_on_batch(fit.train_on_batch, watch))


def _fit(original: patches.Replacement, watch: Watch) -> patches.Replacement:
    def fit(model: Any, method: Callable[..., Any], given: dict[str, Any], ours: dict[str, Any]) -> Any:
        callbacks, own = given["callbacks"], _Callback(watch, model)
        if isinstance(callbacks, keras.callbacks.CallbackList):  # the user may pass the same list to fit again
            given["callbacks"] = keras.callbacks.CallbackList([*callbacks.callbacks, own])
        else:
            given["callbacks"] = [*keras.tree.flatten(callbacks or []), own]
        watch.call("fit", model)
        return original(model, method, given, ours)

    return fit


def _train_on_batch(original: patches.Replacement, watch: Watch) -> patches.Replacement:
    def train_on_batch(model: Any, method: Callable[..., Any], given: dict[str, Any], ours: dict[str, Any]) -> Any:
        watch.call("train_on_batch", model)
        if model.built and model not in watch.models:
            watch.begin(model)
        logs = original(model, method, given, ours)
        watch.step(model)
        return logs

    return train_on_batch


class Rows:
    """Counts rows and sums checksums that do not depend on their order. The sums over ranks are of global batches.

    The checksum of a row is a sum over its elements, so zeros do not change it: ranks pad ragged rows to other lengths
    than one process does. A fingerprint of its bytes (tf.fingerprint) would differ.
    """

    def __init__(self) -> None:
        self._count, self._checksum = model_state.counter(), model_state.counter()

    def note(self, data: Any, count: Any = None) -> None:
        """Adds a batch, eagerly or in a graph. With `count` = 0 its rows are padding and are ignored."""
        leaves = [leaf for leaf in tree.flatten(data) if has_rows(leaf)]
        count = tf_data.slicer.rows_of(leaves[0]) if count is None else count
        total = tf_data.slicer.checksum_of_rows(leaves)
        self._count.assign_add(count)
        self._checksum.assign_add(keras.ops.where(count > 0, total, keras.ops.zeros_like(total)))

    def take(self) -> tuple[int, int]:
        """Rows and checksum since the last call."""
        taken = int(self._count.numpy()), int(self._checksum.numpy())
        self._count.assign(0)
        self._checksum.assign(0)
        return taken


class _Callback(keras.callbacks.Callback):
    def __init__(self, watch: Watch, model: Any) -> None:
        super().__init__()
        self.watch, self.trained = watch, model  # a CallbackList may not know its model

    def on_train_begin(self, logs: Any = None) -> None:
        if self.trained.built or self.trained in self.watch.models:  # else its first step builds it
            self.watch.begin(self.trained)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.watch.losses.pop(self.trained, None)  # Keras has just reset them

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.watch.step(self.trained)


class Watch:
    """The observer of one process."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder, self.plan = folder, plan
        self.rank, self.size = layout().rank, layout().size
        self.written = self.steps = 0
        self.calls = {"fit": 0, "train_on_batch": 0}
        self.method, self.step_of_call = "fit", 0
        self.rows: weakref.WeakKeyDictionary[Any, Rows] = weakref.WeakKeyDictionary()
        self.losses: weakref.WeakKeyDictionary[Any, tuple[float, float]] = weakref.WeakKeyDictionary()
        self.models: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # numbered as they train
        self.known = 0
        self.examined, self.findings = 0, list[examine.Finding]()
        self.builds = False  # while a step is traced only to build the model

    def data(self, model: Any) -> None:
        """Observes the data that the steps of this model read. The model keeps its class, which other code checks."""
        if model in self.rows:
            return
        self.rows[model] = rows = Rows()

        def observed(original: Callable[..., Any]) -> Callable[..., Any]:
            def train_step(data: Any) -> Any:
                step = current_step()
                if self.builds or (self.size > 1 and step is None):
                    return original(data)  # traced to build the model, or a step of this rank alone
                if model not in self.models:  # on several ranks, it is built before the first step
                    in_fresh_thread(lambda: self._build(model, data))
                seen = tree.map_structure(_as_tensor, data)
                rows.note(seen, step.rows if step else None)
                self.examine(model, seen)
                return original(data)

            return train_step

        hooks.hook(model, "train_step", observed, tag="verify")
        model.train_function = None

    def _build(self, model: Any, data: Any) -> None:
        """Builds the model before its first step, as several ranks do."""
        self.builds = True
        try:
            start.build(model, data, "train")
        finally:
            self.builds = False
        self.begin(model)

    def call(self, method: str, model: Any) -> None:
        """Called when `fit` or `train_on_batch` begins."""
        self.calls[method] += 1
        self.method, self.step_of_call = method, 0
        if self._examines():
            model.run_eagerly, model.jit_compile, model.train_function = True, False, None

    def begin(self, model: Any) -> None:
        """Called before the first step of a call, when the model is built."""
        if model not in self.models:
            self.known += 1
            self.models[model] = self.known
            self._same_start(model, Path(self.plan["initial"]) / f"{self.known}.pickle")
        self.rows[model].take()
        self._write(model)

    def step(self, model: Any) -> None:
        """Called after each step. Ends the script with exit code 0 after the last requested step."""
        self.steps += 1
        self.step_of_call += 1
        self._write(model)
        if self.steps >= self.plan["steps"]:
            raise SystemExit(0)

    def _examines(self) -> bool:
        return bool(self.plan.get("examine") == [self.method, self.calls[self.method]])

    def examine(self, model: Any, data: Any) -> None:
        """In a process that looks for causes: examines this batch, and ends the script after `_EXAMINED` batches."""
        if not self._examines():
            return
        kept = Path(self.plan["kept"])
        if self.size > 1:  # with the whole batch: on their own rows, ranks would see other numbers and losses
            self.findings = in_fresh_thread(lambda: examine.compare_results(kept, model, data))
        else:
            if not self.examined:
                examine.keep_results(kept, model, data)  # before experiments change the model's state
            self.findings += [each for each in examine.examine(model, data) if each not in self.findings]
        (self.folder / f"findings.{self.rank}.json").write_text(json.dumps(self.findings))
        self.examined += 1
        if self.size > 1 or self.examined == _EXAMINED:
            raise SystemExit(0)

    def _same_start(self, model: Any, path: Path) -> None:
        """One process stores the initial weights of a model; ranks load them."""
        for layer in private.every_layer(model, include_self=False):
            if layer.name in self.plan.get("off", []):
                examine.switch_off(layer)
        variables = [v for v in model.variables if not private.is_seed(v)]
        if path.exists():
            values = pickle.loads(path.read_bytes())
            if [v.shape for v in values] == [tuple(v.shape) for v in variables]:
                for variable, value in zip(variables, values, strict=True):
                    variable.assign(value)
        elif self.size == 1:
            path.write_bytes(pickle.dumps([np.asarray(v) for v in variables]))

    def _label(self) -> str:
        number = self.calls[self.method]
        if self.method == "train_on_batch":
            return f"train_on_batch call {number}"
        label = f"step {self.step_of_call}" if self.step_of_call else "before step 1"
        return label + (f" of fit call {number}" if number > 1 else "")

    def _write(self, model: Any) -> None:
        rows, checksum = self.rows[model].take()
        values = [np.asarray(v) for v in model.trainable_variables]
        tracker = next((m for m in model.metrics if m.name == "loss" and hasattr(m, "total")), None)
        loss, weight = self._loss(model, tracker)
        rate = getattr(getattr(model, "optimizer", None), "learning_rate", None)
        observation = record.Observation(
            label=self._label(),
            model=self.models.get(model, 0),
            method=self.method,
            call=self.calls[self.method],
            step=self.step_of_call,
            rows=rows,
            checksum=checksum,
            loss=loss,
            weight=weight,
            learning_rate=None if rate is None else float(rate),
            precision=_precision(model),
            loss_precision=tracker.dtype if tracker else "float32",
            names=[v.path for v in model.trainable_variables],
            shapes=[list(v.shape) for v in values],
            sketches=[record.sketch(v) for v in values],
            samples=[record.sample(v) for v in values],
        )
        record.write(self.folder, self.rank, self.written, observation)
        self.written += 1

    def _loss(self, model: Any, tracker: Any) -> tuple[float, float]:
        """The change of the loss's running sum and count since the last observation."""
        if tracker is None:
            return 0.0, 0.0
        now = float(np.asarray(tracker.total)), float(np.asarray(tracker.count))
        before = self.losses.get(model, (0.0, 0.0))
        self.losses[model] = now
        return now[0] - before[0], now[1] - before[1]


def _as_tensor(leaf: Any) -> Any:
    """Converts an array, which an eager step of train_on_batch gets as the user has passed it."""
    return keras.ops.convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


def _precision(model: Any) -> str:
    kinds = {v.dtype for v in model.trainable_variables} | {layer.compute_dtype for layer in private.every_layer(model)}
    return next((kind for kind in _PRECISIONS if kind in kinds), "float32")
