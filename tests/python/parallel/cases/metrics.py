"""Every metric of Keras, user-defined metrics, and the results of fit, evaluate and predict."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import CLASSES, FEATURES, Wrap, case, compiled, data, full, mlp
from keras import ops

M = keras.metrics

# By the kind of target that they need. Not here: those with axis=0, which differ between batch sizes on one process.
REGRESSION = [
    M.MeanSquaredError,
    M.RootMeanSquaredError,
    M.MeanAbsoluteError,
    M.MeanAbsolutePercentageError,
    M.MeanSquaredLogarithmicError,
    M.LogCoshError,
    M.R2Score,
    M.Accuracy,
]
VECTORS = [M.CosineSimilarity, M.KLDivergence, M.Poisson]
VECTORS += [getattr(M, name) for name in ("PearsonCorrelation", "ConcordanceCorrelation") if hasattr(M, name)]
BINARY = [
    M.AUC,
    lambda: M.AUC(curve="PR", name="pr"),
    M.BinaryAccuracy,
    M.BinaryCrossentropy,
    M.BinaryIoU,
    M.Precision,
    M.Recall,
    M.TruePositives,
    M.TrueNegatives,
    M.FalsePositives,
    M.FalseNegatives,
    lambda: M.PrecisionAtRecall(0.5),
    lambda: M.RecallAtPrecision(0.5),
    lambda: M.SensitivityAtSpecificity(0.5),
    lambda: M.SpecificityAtSensitivity(0.5),
    M.Hinge,
    M.SquaredHinge,
]
ONE_HOT = [
    M.CategoricalAccuracy,
    M.CategoricalCrossentropy,
    M.CategoricalHinge,
    M.F1Score,
    lambda: M.FBetaScore(average="macro", beta=2.0),
    lambda: M.OneHotIoU(CLASSES, [0, 2]),
    lambda: M.OneHotMeanIoU(CLASSES),
    lambda: M.AUC(multi_label=True, name="many"),
]
CLASS_NUMBERS = [
    M.SparseCategoricalAccuracy,
    M.SparseCategoricalCrossentropy,
    lambda: M.IoU(CLASSES, [0, 1], sparse_y_pred=False),
    lambda: M.MeanIoU(CLASSES, sparse_y_pred=False),
]


# TensorFlow has it in float32 only.
TOP = [lambda: M.TopKCategoricalAccuracy(2), lambda: M.SparseTopKCategoricalAccuracy(2)]


def _run(wrap: Wrap, kinds: list[Any], target: Any, activation: str, loss: Any) -> Any:
    x, _ = data()
    weights = np.linspace(0, 2, len(x))
    units = 1 if target.ndim == 1 and activation != "softmax" else CLASSES if target.ndim == 1 else target.shape[1]
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(units, activation=activation)])
    weighted = [kind() for kind in kinds]
    for metric in weighted:
        metric.name = f"weighted_{metric.name}"
    model = compiled(wrap(model), loss=loss, metrics=[kind() for kind in kinds], weighted_metrics=weighted)
    split = {"validation_data": (x[:11], target[:11], weights[:11])}
    history = model.fit(x, target, batch_size=7, epochs=2, sample_weight=weights, verbose=0, **split)
    found = model.evaluate(x, target, batch_size=9, sample_weight=weights, verbose=0, return_dict=True)
    # What the user reads afterwards is global too.
    read = {name: np.asarray(value) for name, value in model.get_metrics_result().items()}
    return {"history": dict(history.history), "evaluate": found, "read": read, "weights": model.get_weights()}


@full
@case
def metrics_of_regression(wrap: Wrap) -> Any:
    x, _ = data()
    return _run(wrap, REGRESSION, np.abs(x[:, :1]), "softplus", "mse")


@full
@case
def metrics_of_vectors(wrap: Wrap) -> Any:
    x, _ = data()
    target = np.exp(x[:, :3]) / np.exp(x[:, :3]).sum(1, keepdims=True)
    return _run(wrap, VECTORS, target, "softmax", "mse")


@full
@case
def metrics_of_yes_or_no(wrap: Wrap) -> Any:
    _, y = data()
    return _run(wrap, BINARY, (y > 0).astype("float64")[:, None], "sigmoid", "binary_crossentropy")


@full
@case
def metrics_of_one_hot_classes(wrap: Wrap) -> Any:
    _, y = data()
    return _run(wrap, ONE_HOT, np.eye(CLASSES)[y], "softmax", "categorical_crossentropy")


@full
@case
def metrics_of_class_numbers(wrap: Wrap) -> Any:
    _, y = data()
    return _run(wrap, CLASS_NUMBERS, y, "softmax", "sparse_categorical_crossentropy")


@full
@case
def metrics_of_the_best_classes_float32(wrap: Wrap) -> Any:
    _, y = data()
    one_hot = _run(wrap, TOP[:1], np.eye(CLASSES, dtype="float32")[y], "softmax", "categorical_crossentropy")
    return [one_hot, _run(wrap, TOP[1:], y, "softmax", "sparse_categorical_crossentropy")]


@case
def every_metric_of_keras_is_here(wrap: Wrap) -> Any:
    kinds = [*REGRESSION, *VECTORS, *BINARY, *ONE_HOT, *CLASS_NUMBERS, *TOP]
    tried = {type(kind()).__name__ for kind in kinds} | {"Metric", "Mean", "MeanMetricWrapper", "Sum"}
    every = {name for name, kind in vars(M).items() if isinstance(kind, type) and issubclass(kind, M.Metric)}
    assert every <= tried, every - tried
    return []


class Reach(M.Metric):
    """Neither of its variables is a sum over rows."""

    tnt_combine = {"lowest": "min", "highest": "max"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(name="reach")
        self.lowest = self.add_variable((CLASSES,), keras.initializers.Constant(1e9), name="lowest")
        self.highest = self.add_variable((CLASSES,), keras.initializers.Constant(-1e9), name="highest")
        self.rows = self.add_variable((), "zeros", name="rows")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.lowest.assign(ops.minimum(self.lowest, ops.min(y_pred, axis=0)))
        self.highest.assign(ops.maximum(self.highest, ops.max(y_pred, axis=0)))
        self.rows.assign_add(ops.cast(ops.shape(y_pred)[0], self.rows.dtype))

    def result(self) -> Any:
        return {"reach": ops.sum(self.highest - self.lowest), "rows": self.rows}


class MeanAndCount(M.Metric):
    """A running mean: its state combines by a rule of its own."""

    def __init__(self) -> None:
        super().__init__(name="mean_and_count")
        self.mean = self.add_variable((), "zeros", name="mean")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        values = ops.max(y_pred, axis=-1)
        rows = ops.cast(ops.shape(values)[0], self.count.dtype)
        total = self.mean * self.count + ops.sum(values)
        self.count.assign_add(rows)
        self.mean.assign(total / self.count)

    def tnt_combine(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        count = sum(state["count"] for state in states)
        return {"mean": sum(state["mean"] * state["count"] for state in states) / count, "count": count}

    def result(self) -> Any:
        return self.mean


def mean_of_a_batch(y_true: Any, y_pred: Any) -> Any:
    return ops.mean(ops.square(y_pred))


def value_a_row(y_true: Any, y_pred: Any) -> Any:
    return ops.max(y_pred, axis=-1)


@full
@case
def own_metrics_that_do_not_add_up(wrap: Wrap) -> Any:
    x, y = data()
    kinds = [Reach(), MeanAndCount(), mean_of_a_batch, value_a_row]
    model = compiled(wrap(mlp()), metrics=kinds)
    history = model.fit(x, y, batch_size=7, epochs=2, verbose=0)
    found = model.evaluate(x, y, batch_size=2, verbose=0)
    return {"history": dict(history.history), "evaluate": found, "read": [float(kinds[0].rows), float(kinds[1].mean)]}


class Tracking(keras.Sequential):
    """Keras's guide: an own step with a Mean that gets the loss of each batch."""

    def __init__(self, layers: Any) -> None:
        super().__init__(layers)
        self.tracker = M.Mean(name="loss")
        self.error = M.MeanAbsoluteError(name="mae")
        self.total = M.Sum(name="total")

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker, self.error, self.total]

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = ops.mean(ops.square(y - y_pred))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.tracker.update_state(loss)
        self.error.update_state(y, y_pred)
        self.total.update_state(ops.abs(y))
        return {metric.name: metric.result() for metric in self.metrics}


@case
def own_step_with_a_mean_of_losses(wrap: Wrap) -> Any:
    x, _ = data()
    model = wrap(Tracking([keras.Input((FEATURES,)), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(0.05))
    history = model.fit(x, x[:, :1], batch_size=7, epochs=3, verbose=0)
    return {"history": dict(history.history), "read": [float(metric.result()) for metric in model.metrics]}


@case
def evaluated_with_all_options(wrap: Wrap) -> Any:
    x, y = data()
    weight = np.linspace(0, 2, len(x))
    model = compiled(wrap(mlp()), weighted_metrics=["accuracy"])
    ended: list[Any] = []
    end = keras.callbacks.LambdaCallback(on_test_end=lambda logs: ended.append(logs))
    return [
        model.evaluate(x, y, verbose=0),
        model.evaluate(x, y, 5, 0, weight),
        model.evaluate(x, y, batch_size=5, steps=3, verbose=0, return_dict=True),
        model.evaluate(tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(6), verbose=0, callbacks=[end]),
        ended,
    ]


@case
def predicted_structures(wrap: Wrap) -> Any:
    x, _ = data()
    inputs = keras.Input((FEATURES,))
    wide, flat = keras.layers.Dense(6)(inputs), keras.layers.Dense(1)(inputs)
    square = keras.layers.Reshape((3, 2))(wide)
    outputs = {"one": [square, ops.cast(flat > 0, "int8")], "two": (flat[:, 0], ops.cast(wide, "float16"))}
    model = wrap(keras.Model(inputs, outputs))
    seen: list[Any] = []
    see = keras.callbacks.LambdaCallback(on_predict_end=lambda logs: seen.append(1))
    return [
        model.predict(x, batch_size=7, verbose=0),
        model.predict(x[:1], verbose=0, callbacks=[see]),
        model.predict(tf.data.Dataset.from_tensor_slices(x).batch(4), verbose=0, steps=3),
        len(seen),
    ]
