"""Callbacks see, decide and write the same as on one process."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from common import CLASSES, Wrap, case, compiled, data, folder, full, is_master, mlp, on_ranks, trained

C = keras.callbacks


def chosen(callback: Any, **options: Any) -> Any:
    return sys.modules["tarantella"].keras.callbacks.Callback(callback, **options) if on_ranks() else callback


def fitted(wrap: Wrap, callbacks: list[Any], optimizer: Any = None, **options: Any) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()), optimizer)
    options = {"batch_size": 7, "epochs": 4, "validation_data": (x[:11], y[:11]), "verbose": 0, **options}
    return trained(model, model.fit(x, y, callbacks=callbacks, **options))


def weights_in(path: Path) -> Any:
    if path.name.endswith(".weights.h5"):
        model = mlp()
        model.load_weights(path)
        return model.get_weights()
    return keras.models.load_model(path).get_weights()


def files_in(path: Path) -> Any:
    return {each.name: weights_in(each) for each in sorted(path.iterdir()) if each.name.endswith((".keras", ".h5"))}


class OwnCheckpoint(C.ModelCheckpoint):
    """A user's subclass follows the rule of its base."""


@full
@case
def files_of_every_epoch(wrap: Wrap) -> Any:
    path = folder("every")
    every = [
        C.CSVLogger(str(path / "log.csv")),
        C.ModelCheckpoint(str(path / "{epoch}-{val_loss:.6f}.keras")),
        OwnCheckpoint(str(path / "best.weights.h5"), monitor="loss", save_best_only=True, save_weights_only=True),
        C.ModelCheckpoint(str(path / "batch-{epoch}-{batch}.weights.h5"), save_weights_only=True, save_freq=4),
    ]
    result = fitted(wrap, every)
    with open(path / "log.csv") as file:
        rows = list(csv.reader(file))
    return {**result, "names": rows[0], "log": np.array(rows[1:], float), "files": files_in(path)}


@full
@case
def learning_rates(wrap: Wrap) -> Any:
    plan = C.LearningRateScheduler(lambda epoch, rate: rate * 0.7)
    plateau = C.ReduceLROnPlateau(monitor="val_loss", patience=0, min_delta=0.05)
    return fitted(wrap, [plan, plateau])


@full
@case
def averaged_weights(wrap: Wrap) -> Any:
    path = folder("ema")
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.7)
    swap = C.SwapEMAWeights(swap_on_epoch=True)
    result = fitted(wrap, [swap, C.ModelCheckpoint(str(path / "{epoch}.keras"))], optimizer)
    return {**result, "files": files_in(path)}


class Interrupted(Exception):  # noqa: N818
    pass


class Interrupts(C.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.model.optimizer.iterations == 14:
            raise Interrupted


@full
@case
def interrupted_and_restored(wrap: Wrap) -> Any:
    path = folder("backup")
    x, y = data()
    options = {"batch_size": 7, "epochs": 4, "shuffle": False, "verbose": 0}
    broken, restored, unbroken = (compiled(wrap(mlp()), keras.optimizers.Adam(0.01)) for _ in range(3))
    unbroken.set_weights(broken.get_weights())
    try:
        broken.fit(x, y, callbacks=[C.BackupAndRestore(path), Interrupts()], **options)
        raise AssertionError("not interrupted")
    except Interrupted:
        assert path.exists()
    history = restored.fit(x, y, callbacks=[C.BackupAndRestore(path)], **options)
    unbroken.fit(x, y, **options)
    for ours, wanted in zip(restored.get_weights(), unbroken.get_weights(), strict=True):
        np.testing.assert_allclose(ours, wanted, 1e-9, 1e-9)
    return {**trained(restored, history), "epochs": history.epoch, "gone": not path.exists()}


class Sees(C.Callback):
    """All logs that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[Any]] = {}

    def _keep(self, name: str, logs: Any) -> None:
        self.seen.setdefault(name, []).append(dict(logs))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._keep("batch", logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._keep("test batch", logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._keep("epoch", logs)
        assert logs["val_loss"] == float(self.model.get_metrics_result()["loss"])

    def on_test_end(self, logs: Any = None) -> None:
        self._keep("test", logs)


@full
@case
def logs_of_epochs(wrap: Wrap) -> Any:
    sees = Sees()
    result = fitted(wrap, [sees], epochs=2)
    return {**result, "seen": [sees.seen["epoch"], sees.seen["test"]]}


@full
@case
def logs_of_batches(wrap: Wrap) -> Any:
    sees = Sees()
    return {**fitted(wrap, [chosen(sees, aggregate_logs=True)], epochs=2), "seen": sees.seen}


@full
@case
def logs_of_batches_for_the_master(wrap: Wrap) -> Any:
    sees = Sees()
    result = fitted(wrap, [chosen(sees, run_on_all_ranks=False)], epochs=2)
    return {**result, "seen": len(sees.seen) if is_master() else 4}


class Saves(C.Callback):
    """Each rank saves under its own name; only the file of the master exists."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.rank = path, sys.modules["tarantella"].get_rank() if on_ranks() else 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.save(self.path / f"{epoch} of {self.rank}.keras")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.save_weights(self.path / f"{self.rank}.weights.h5", overwrite=True)

    def on_test_end(self, logs: Any = None) -> None:
        self.model.save(self.path / f"tested by {self.rank}.keras")


@full
@case
def saved_by_a_callback_of_ones_own(wrap: Wrap) -> Any:
    path = folder("own")
    return {**fitted(wrap, [Saves(path)], epochs=2), "files": files_in(path)}


@case
def labels_that_are_no_numbers(wrap: Wrap) -> Any:
    """NaN labels in the rows of one rank: all ranks stop where one process stops."""
    x, _ = data()
    y = x[:, :1].copy()
    y[20] = np.nan
    model = wrap(keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(1)]))
    model.compile("adam", "mse")
    model.fit(x, y, batch_size=8, epochs=4, shuffle=False, verbose=0, callbacks=[C.TerminateOnNaN()])
    return {
        "weights": model.get_weights(),
        "steps": model.optimizer.iterations,
        "loss": model.evaluate(x, y, verbose=0),
    }


class StopsAt(C.Callback):
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = bool(self.model.optimizer.iterations == self.step)


@full
@case
def given_to_the_master_alone(wrap: Wrap) -> Any:
    """Its checkpoint is written, and all ranks stop when it stops."""
    path = folder("alone")
    alone = [C.ModelCheckpoint(str(path / "{epoch}.keras"), save_freq=3), StopsAt(8), C.EarlyStopping("loss")]
    return {**fitted(wrap, alone if is_master() else []), "files": files_in(path)}


@full
@case
def stopped_early_by_the_master_alone(wrap: Wrap) -> Any:
    stop = C.EarlyStopping("loss", min_delta=0.05)
    return fitted(wrap, [stop] if is_master() else None, epochs=30)


@full
@case
def weights_put_back_by_the_master_alone(wrap: Wrap) -> Any:
    best = C.EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True)
    return fitted(wrap, [best] if is_master() else [])


class StopsPredicting(C.Callback):
    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_predicting = batch == 2


@case
def predictions_stopped_by_another_rank(wrap: Wrap) -> Any:
    x, _ = data()
    stops = not on_ranks() or sys.modules["tarantella"].get_rank() == sys.modules["tarantella"].get_size() - 1
    return wrap(mlp()).predict(x, batch_size=7, callbacks=[StopsPredicting()] if stops else [], verbose=0)


@case
def a_list_and_a_single_one(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()))
    sees = Sees()
    every = C.CallbackList([sees], add_history=True, model=model, epochs=2, steps=6)
    first = trained(model, model.fit(x, y, batch_size=7, epochs=2, validation_split=0.3, verbose=0, callbacks=every))
    single = C.LambdaCallback(on_epoch_end=lambda epoch, logs: sees.seen["epoch"].append(logs))
    second = trained(model, model.fit(x, y, batch_size=7, verbose=0, callbacks=single))
    return [first, second, sees.seen["epoch"]]


class StopsEvaluating(C.Callback):
    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_evaluating = True


@case
def evaluations_stopped_by_the_master_alone(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()))
    stop = [StopsEvaluating()] if is_master() else []
    history = model.fit(x, y, batch_size=7, epochs=2, validation_data=(x[:11], y[:11]), verbose=0, callbacks=stop)
    return {**trained(model, history), "evaluate": model.evaluate(x, y, batch_size=9, verbose=0, callbacks=stop)}


@full
@case
def evaluated_amid_epochs(wrap: Wrap) -> Any:
    """By all ranks together, then by each rank alone: the metrics of the epoch continue from that state."""
    x, y = data()
    results = []
    for together in (True, False):
        model = compiled(wrap(mlp()), loss="mse", metrics=["accuracy", keras.metrics.AUC(from_logits=True)])
        evaluates = model if together else getattr(model, "keras_model", model)
        found: list[Any] = []

        def evaluate(batch: int, logs: Any, model: Any = evaluates, found: list[Any] = found) -> None:
            if batch in (0, 3):
                found.append(model.evaluate(x[:11], np.eye(CLASSES)[y[:11]], batch_size=4, verbose=0))

        amid = C.LambdaCallback(on_train_batch_end=evaluate)
        history = model.fit(x, np.eye(CLASSES)[y], batch_size=7, epochs=2, verbose=0, callbacks=[amid])
        results.append({**trained(model, history), "found": found})
    return results
