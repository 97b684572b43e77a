"""Losses of every kind and in any combination: each term has its own share of the global batch."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import CLASSES, FEATURES, SAMPLES, Wrap, case, compiled, data, extended, full, results, trained
from keras import ops

LENGTH, WORDS = 6, 11


def sentences() -> tuple[Any, Any]:
    """Word numbers, 0 after a sentence's end, and a class for each word."""
    random = np.random.default_rng(3)
    words = random.integers(1, WORDS, (SAMPLES, LENGTH))
    words[np.arange(LENGTH) >= random.integers(1, LENGTH + 1, SAMPLES)[:, None]] = 0
    return words, random.integers(0, CLASSES, words.shape)


def tagger(masked: bool = True, **options: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input((LENGTH,)),
            keras.layers.Embedding(WORDS, 4, mask_zero=masked),
            keras.layers.Dense(CLASSES, **options),
        ]
    )


def tagged(wrap: Wrap, loss: Any, model: Any = None, weight: Any = None, batch_size: int = 9, **options: Any) -> Any:
    words, tags = sentences()
    model = compiled(wrap(model or tagger()), keras.optimizers.SGD(0.1), loss=loss, **options)
    history = model.fit(words, tags, batch_size=batch_size, epochs=2, verbose=0, sample_weight=weight)
    return results(model, history, words, tags, sample_weight=weight)


def crossentropy(**options: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def regression(wrap: Wrap, loss: Any, layers: Any = (), weight: Any = None, **options: Any) -> Any:
    x, _ = data()
    net = [keras.layers.Dense(8, activation="tanh"), *layers, keras.layers.Dense(2)]
    model = compiled(
        wrap(keras.Sequential([keras.Input((FEATURES,)), *net])),
        keras.optimizers.SGD(0.02),
        loss=loss,
        metrics=[],
        **options,
    )
    history = model.fit(x, x[:, :2], batch_size=9, epochs=2, verbose=0, sample_weight=weight)
    return results(model, history, x, x[:, :2], sample_weight=weight)


@extended
@case
def masked(wrap: Wrap) -> Any:
    return tagged(wrap, crossentropy())


@full
@case
def masked_one_row_left(wrap: Wrap) -> Any:
    return tagged(wrap, crossentropy(), batch_size=6)


@full
@case
def masked_and_summed(wrap: Wrap) -> Any:
    return tagged(wrap, crossentropy(reduction="sum"))


@full
@case
def masked_and_weighted(wrap: Wrap) -> Any:
    weight = np.random.default_rng(1).uniform(0, 2, (SAMPLES, LENGTH))
    return tagged(wrap, crossentropy(), weight=weight, weighted_metrics=["accuracy"])


@full
@case
def masked_and_weighted_mean(wrap: Wrap) -> Any:
    weight = np.random.default_rng(1).uniform(0, 2, (SAMPLES, LENGTH))
    return tagged(wrap, crossentropy(reduction="mean_with_sample_weight"), weight=weight)


@extended
@case
def ignored_class(wrap: Wrap) -> Any:
    return tagged(wrap, crossentropy(ignore_class=1), tagger(masked=False))


@full
@case
def ignored_class_in_several_steps(wrap: Wrap) -> Any:
    """The count of a step depends on its data alone: it must not overtake the step before."""
    model = wrap(tagger(masked=False))
    compiled(model, keras.optimizers.SGD(0.1), loss=crossentropy(ignore_class=1), steps_per_execution=4)
    model.unrolled_steps_per_execution = 2
    words, tags = sentences()
    return results(model, model.fit(words, tags, batch_size=5, epochs=2, verbose=0), words, tags)


@case
def ignored_class_eagerly(wrap: Wrap) -> Any:
    return tagged(wrap, crossentropy(ignore_class=1), run_eagerly=True)


@extended
@case
def weighted_mean(wrap: Wrap) -> Any:
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    return regression(wrap, loss, weight=np.linspace(0, 2, SAMPLES))


def weighted_after_unweighted(wrap: Wrap, **options: Any) -> Any:
    """Only the second trace of each step has the sum over ranks that weights need."""
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    x, y = data()
    y, weight = y[:, None].astype(float), np.linspace(0, 2, SAMPLES)
    model = compiled(
        wrap(keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])), "sgd", loss=loss, **options
    )
    model.fit(x, y, batch_size=8, validation_data=(x, y), verbose=0)
    history = model.fit(x, y, batch_size=8, sample_weight=weight, verbose=0)
    result = [trained(model, history), model.evaluate(x, y, sample_weight=weight, verbose=0)]
    model.train_on_batch(x[:9], y[:9])
    return [*result, model.train_on_batch(x[:9], y[:9], sample_weight=weight[:9]), model.get_weights()]


@full
@case
def weighted_mean_after_a_plain_one(wrap: Wrap) -> Any:
    return weighted_after_unweighted(wrap)


@full
@case
def weighted_mean_after_a_plain_one_compiled_by_xla(wrap: Wrap) -> Any:
    return weighted_after_unweighted(wrap, jit_compile=True)


@case
def weighted_mean_of_classes(wrap: Wrap) -> Any:
    x, y = data()
    net = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(CLASSES)])
    model = compiled(wrap(net), loss=crossentropy(reduction="mean_with_sample_weight"))
    weight = {0: 0.5, 1: 2.0, 2: 1.0}
    return trained(model, model.fit(x, y, batch_size=6, epochs=2, class_weight=weight, verbose=0))


@case
def regularized_sum(wrap: Wrap) -> Any:
    layers = [keras.layers.Dense(4, kernel_regularizer="l2", activity_regularizer="l1")]
    return regression(wrap, keras.losses.MeanSquaredError(reduction="sum"), layers)


class Adds(keras.layers.Layer):
    """Adds the loss that its function computes from the outputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def call(self, x: Any) -> Any:
        self.add_loss(self.function(x))
        return x


@case
def added_sum(wrap: Wrap) -> Any:
    return regression(wrap, "mse", [Adds(lambda x: 0.01 * ops.sum(ops.square(x)))])


@case
def added_vector(wrap: Wrap) -> Any:
    return regression(wrap, "mse", [Adds(lambda x: 0.01 * ops.sum(ops.square(x), axis=1))])


@case
def added_mean_beside_a_sum(wrap: Wrap) -> Any:
    loss = keras.losses.MeanSquaredError(reduction="sum")
    return regression(wrap, loss, [Adds(lambda x: ops.mean(ops.square(x))), keras.layers.Dropout(0.0)])


class AddsInTraining(Adds):
    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.add_loss([0.01 * ops.sum(ops.square(x)), ops.mean(ops.abs(x))])
        return x


@case
def added_in_training_only(wrap: Wrap) -> Any:
    layers = [AddsInTraining(None), keras.layers.ActivityRegularization(l2=0.1)]
    return regression(wrap, "mae", layers, run_eagerly=False)


@case
def function_of_rows(wrap: Wrap) -> Any:
    return regression(wrap, lambda true, predicted: ops.sum(ops.square(true - predicted), axis=-1))


@case
def function_that_sums(wrap: Wrap) -> Any:
    return regression(wrap, lambda true, predicted: 0.1 * ops.sum(ops.square(true - predicted)))


@case
def function_that_averages(wrap: Wrap) -> Any:
    return regression(wrap, lambda true, predicted: ops.mean(ops.square(true - predicted)), weight=None)


class Summed(keras.losses.Loss):
    """A user's own class whose call reduces by itself."""

    def call(self, true: Any, predicted: Any) -> Any:
        return ops.sum(ops.abs(true - predicted))


@extended
@case
def class_that_sums(wrap: Wrap) -> Any:
    return regression(wrap, Summed())


class Counting(keras.losses.Loss):
    """Grows with every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = keras.Variable(0.0, trainable=False, dtype="float64")

    def call(self, true: Any, predicted: Any) -> Any:
        self.batches.assign_add(1.0)
        return ops.mean(ops.square(true - predicted), -1) * (1 + 0.1 * self.batches)


@case
def with_a_variable_of_its_own(wrap: Wrap) -> Any:
    loss = Counting()
    return [regression(wrap, loss), np.asarray(loss.batches)]


@full
@case
def mixture(wrap: Wrap) -> Any:
    """Masked, summed, weighted and plain outputs, regularizers of all kinds, added sums and means."""
    words, tags = sentences()
    x, _ = data()
    text, numbers = keras.Input((LENGTH,), name="text"), keras.Input((FEATURES,), name="numbers")
    tag = keras.layers.Embedding(WORDS, 4, mask_zero=True)(text)
    tag = keras.layers.Dense(CLASSES, name="tag", kernel_regularizer="l2")(tag)
    hidden = keras.layers.Dense(6, activation="tanh", activity_regularizer="l2")(numbers)
    hidden = Adds(lambda h: 0.01 * ops.sum(ops.square(h)))(hidden)
    hidden = Adds(lambda h: ops.mean(ops.abs(h)))(hidden)
    outputs = {
        "tag": tag,
        **{name: keras.layers.Dense(1, name=name)(hidden) for name in ("mean", "total", "weighted")},
    }
    model = wrap(keras.Model({"text": text, "numbers": numbers}, outputs))
    losses = {
        "tag": crossentropy(),
        "mean": "mse",
        "total": keras.losses.MeanAbsoluteError(reduction="sum"),
        "weighted": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"),
    }
    weights = {"tag": 1.0, "mean": 0.5, "total": 0.1, "weighted": 2.0}
    model.compile(keras.optimizers.SGD(0.05), losses, loss_weights=weights)
    targets = {"tag": tags, "mean": x[:, :1], "total": x[:, 1:2], "weighted": x[:, 2:3]}
    rows = np.linspace(0.1, 2, SAMPLES)
    importance = {"tag": np.ones((SAMPLES, LENGTH)), "mean": rows, "total": rows, "weighted": rows}
    inputs = {"text": words, "numbers": x}
    history = model.fit(inputs, targets, sample_weight=importance, batch_size=6, epochs=2, verbose=0)
    return results(model, history, inputs, targets, sample_weight=importance)


@full
@case
def unreduced_beside_others(wrap: Wrap) -> Any:
    """Keras adds the numbers of the others to every row's, and takes the gradient of the rows' sum."""
    x, _ = data()
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(6, activation="tanh")(inputs)
    losses = {
        "rows": keras.losses.MeanSquaredError(reduction="none"),
        "mean": "mse",
        "total": keras.losses.MeanAbsoluteError(reduction="sum"),
        "weighted": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"),
    }
    model = wrap(keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(hidden) for name in losses}))
    weights = {"rows": 1.0, "mean": 0.5, "total": 0.02, "weighted": 0.2}
    model.compile(keras.optimizers.SGD(0.02), losses, loss_weights=weights)
    targets = {name: x[:, i : i + 1] for i, name in enumerate(losses)}
    importance = {name: np.linspace(0.1, 2, SAMPLES) for name in losses}
    history = model.fit(x, targets, sample_weight=importance, batch_size=9, epochs=2, verbose=0)
    return results(model, history, x, targets, sample_weight=importance)


class Declared(keras.Model):
    """A user-defined loss that is a sum, beside a compiled mean, an added mean and a regularizer."""

    tnt_reduction = "sum"

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(6, activation="tanh", kernel_regularizer="l2")
        self.adds = Adds(lambda x: ops.mean(ops.square(x)))
        self.out = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.out(self.adds(self.hidden(x)))


class SumOfLosses(Declared):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(x, y, y_pred) + 0.1 * ops.sum(ops.abs(y - y_pred))


@full
@case
def own_sum_of_losses(wrap: Wrap) -> Any:
    x, _ = data()
    model = wrap(SumOfLosses())
    model.compile(keras.optimizers.SGD(0.02), "mse", metrics=["mae"])
    history = model.fit(x, x[:, :2], batch_size=6, epochs=2, verbose=0)
    return results(model, history, x, x[:, :2])


class SumInStep(Declared):
    def __init__(self) -> None:
        super().__init__()
        self.total, self.mean = keras.metrics.Mean(name="total"), keras.metrics.Mean(name="mean")
        self.total.tnt_reduction = "sum"

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            errors = ops.abs(y - self(x, training=True))
            loss = ops.sum(errors) + sum(self.losses)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.total.update_state(loss)
        self.mean.update_state(ops.mean(errors))
        return {metric.name: metric.result() for metric in self.metrics}

    @property
    def metrics(self) -> Any:
        return [self.total, self.mean]


@case
def own_step_that_sums(wrap: Wrap) -> Any:
    x, _ = data()
    model = wrap(SumInStep())
    model.compile(keras.optimizers.SGD(0.02))
    return trained(model, model.fit(x, x[:, :2], batch_size=6, epochs=2, verbose=0))


class OwnStep(keras.Model):
    """Keras's guide: a user-defined train_step around compute_loss, with an additional term."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(6, activation="tanh", kernel_regularizer="l2")
        self.adds = Adds(lambda x: 0.01 * ops.sum(ops.square(x)))
        self.out = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.out(self.adds(self.hidden(x)))

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted) + ops.mean(ops.abs(predicted))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, predicted)
        return self.get_metrics_result()


@full
@case
def own_step(wrap: Wrap) -> Any:
    x, _ = data()
    model = wrap(OwnStep())
    model.compile(keras.optimizers.SGD(0.02), keras.losses.MeanSquaredError(reduction="sum"), metrics=["mae"])
    history = model.fit(x, x[:, :2], batch_size=9, epochs=2, verbose=0)
    return results(model, history, x, x[:, :2])


class OwnLoop(OwnStep):
    """Reads the added losses and the regularizers itself."""

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = ops.mean(ops.square(y - predicted)) + sum(self.losses)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return self.compute_metrics(x, y, predicted)

    def test_step(self, batch: Any) -> Any:
        x, y = batch
        predicted = self(x, training=False)
        self._loss_tracker.update_state(self.compute_loss(y=y, y_pred=predicted))
        return self.compute_metrics(x, y, predicted)


@full
@case
def own_step_with_added_losses(wrap: Wrap) -> Any:
    x, _ = data()
    model = wrap(OwnLoop())
    model.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae"])
    model.fit(x, x[:, :2], batch_size=6, epochs=2, verbose=0)
    return {"weights": model.get_weights(), "evaluate": model.evaluate(x, x[:, :2], batch_size=9, verbose=0)}
