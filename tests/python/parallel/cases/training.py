"""The basic trainings: batch sizes, optimizers, losses, structures, steps."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import (
    CLASSES,
    FEATURES,
    Wrap,
    arrays,
    case,
    compiled,
    data,
    dataset,
    extended,
    full,
    mlp,
    pipeline,
    results,
    trained,
)


@full
@case
def sgd_divides(wrap: Wrap) -> Any:
    return arrays(wrap, batch_size=12, samples=36, shuffle=False)


@full
@case
def sgd_shuffled(wrap: Wrap) -> Any:
    return arrays(wrap, batch_size=12, epochs=3)


@case
def sgd_uneven_batch(wrap: Wrap) -> Any:
    return arrays(wrap, batch_size=7)


@extended
@case
def adam(wrap: Wrap) -> Any:
    return arrays(wrap, keras.optimizers.Adam(0.01), batch_size=10)


@full
@case
def adam_float32(wrap: Wrap) -> Any:
    return arrays(wrap, keras.optimizers.Adam(0.01), batch_size=10)


@extended
@case
def sgd_float32(wrap: Wrap) -> Any:
    return arrays(wrap, batch_size=10)


@case
def one_row_left(wrap: Wrap) -> Any:
    """37 rows in batches of 6: the last has one row, less than the ranks."""
    return arrays(wrap, batch_size=6)


@full
@case
def batches_smaller_than_ranks(wrap: Wrap) -> Any:
    return arrays(wrap, keras.optimizers.Adam(0.01), batch_size=2, samples=7)


@case
def batch_larger_than_data(wrap: Wrap) -> Any:
    return arrays(wrap, batch_size=100)


@extended
@case
def default_batch_size(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()))
    return results(model, model.fit(x, y, verbose=0), x, y)


@case
def shuffled_in_batches(wrap: Wrap) -> Any:
    return arrays(wrap, shuffle="batch")


@full
@case
def validation(wrap: Wrap) -> Any:
    return arrays(wrap, validation_split=0.3, validation_batch_size=3)


@case
def validation_data(wrap: Wrap) -> Any:
    x, y = data(11)
    return arrays(wrap, validation_data=(x, y, np.linspace(0, 2, 11)), validation_freq=2)


@case
def class_weight(wrap: Wrap) -> Any:
    return arrays(wrap, class_weight={0: 0.5, 1: 2.0, 2: 1.0})


@extended
@case
def sample_weight(wrap: Wrap) -> Any:
    x, y = data()
    weight = np.linspace(0, 2, len(x))
    model = compiled(wrap(mlp()), weighted_metrics=["accuracy"])
    history = model.fit(x, y, batch_size=9, epochs=2, sample_weight=weight, verbose=0)
    return results(model, history, x, y, sample_weight=weight)


@full
@case
def steps_per_epoch(wrap: Wrap) -> Any:
    return arrays(wrap, batch_size=6, steps_per_epoch=2, epochs=3)


@full
@case
def dataset_uneven(wrap: Wrap) -> Any:
    return dataset(wrap, pipeline(7), validation_data=pipeline(4, 10))


@extended
@case
def dataset_one_row_left(wrap: Wrap) -> Any:
    return dataset(wrap, pipeline(9))


@full
@case
def dataset_drop_remainder(wrap: Wrap) -> Any:
    return dataset(wrap, pipeline(8, drop=True))


@extended
@case
def dataset_shuffled(wrap: Wrap) -> Any:
    source = tf.data.Dataset.from_tensor_slices(data()).shuffle(37, seed=5).batch(8)
    model = compiled(wrap(mlp()))
    return trained(model, model.fit(source, epochs=2, verbose=0))


@case
def dataset_unseeded_shuffle_repeated(wrap: Wrap) -> Any:
    """Its order depends only on set_random_seed; the number of batches is unknown."""
    source = tf.data.Dataset.from_tensor_slices(data()).shuffle(37).filter(lambda x, y: True).batch(8).repeat()
    model = compiled(wrap(mlp()))
    return trained(model, model.fit(source, epochs=2, steps_per_epoch=6, verbose=0))


@extended
@case
def dataset_class_weight(wrap: Wrap) -> Any:
    return dataset(wrap, pipeline(8), class_weight={0: 0.5, 1: 2.0, 2: 1.0})


@extended
@case
def regularized(wrap: Wrap) -> Any:
    x, y = data()
    model = mlp(kernel_regularizer="l2", activity_regularizer=keras.regularizers.L1(0.1))
    model = compiled(wrap(model))
    return trained(model, model.fit(x, y, batch_size=7, epochs=2, verbose=0))


@full
@case
def clipped_accumulated_averaged(wrap: Wrap) -> Any:
    optimizer = keras.optimizers.AdamW(
        0.01, global_clipnorm=0.1, use_ema=True, ema_overwrite_frequency=3, gradient_accumulation_steps=2
    )
    return arrays(wrap, optimizer)


class Keeper(keras.optimizers.SGD):
    """Keeps the gradients themselves, which a reduction with aliased outputs would change afterwards."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.kept = [self.add_variable_from_reference(v, name="kept") for v in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        kept = self.kept[self._get_variable_index(variable)]
        super().update_step(gradient + 0.1 * kept, variable, learning_rate)
        self.assign(kept, gradient)


@full
@case
def gradients_that_are_kept(wrap: Wrap) -> Any:
    return arrays(wrap, Keeper(0.1), epochs=3)


@extended
@case
def schedule(wrap: Wrap) -> Any:
    return arrays(wrap, keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 20)))


@extended
@case
def loss_scaled(wrap: Wrap) -> Any:
    return arrays(wrap, keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)))


@extended
@case
def summed_loss(wrap: Wrap) -> Any:
    x, y = data()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    model = compiled(wrap(mlp()), keras.optimizers.SGD(0.01), loss=loss)
    return results(model, model.fit(x, y, batch_size=7, epochs=2, verbose=0), x, y)


@extended
@case
def unreduced_loss(wrap: Wrap) -> Any:
    x, y = data()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    model = compiled(wrap(mlp()), keras.optimizers.SGD(0.01), loss=loss)
    return trained(model, model.fit(x, y, batch_size=7, epochs=2, verbose=0))


@extended
@case
def structures(wrap: Wrap) -> Any:
    """Two inputs in a dict, two outputs, a loss each."""
    a, b = keras.Input((FEATURES,), name="a"), keras.Input((2,), name="b")
    hidden = keras.layers.Dense(6, activation="tanh")(keras.layers.Concatenate()([a, b]))
    out = {"c": keras.layers.Dense(CLASSES, name="c")(hidden), "d": keras.layers.Dense(1, name="d")(hidden)}
    model = wrap(keras.Model({"a": a, "b": b}, out))
    loss = {"c": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "d": "mse"}
    model = compiled(
        model, keras.optimizers.Adam(0.01), loss=loss, loss_weights={"c": 1.0, "d": 0.3}, metrics={"d": "mae"}
    )
    x, y = data()
    inputs, targets = {"a": x, "b": x[:, :2]}, {"c": y, "d": x.sum(1, keepdims=True)}
    history = model.fit(inputs, targets, batch_size=7, epochs=2, verbose=0)
    return results(model, history, inputs, targets)


@extended
@case
def metrics_of_many_kinds(wrap: Wrap) -> Any:
    x, y = data()
    y = (y > 0).astype("float64")[:, None]
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1, activation="sigmoid")])
    kinds = [
        keras.metrics.AUC(num_thresholds=20),
        keras.metrics.Precision(),
        keras.metrics.F1Score(),
        keras.metrics.R2Score(),
        keras.metrics.RootMeanSquaredError(),
    ]
    model = compiled(wrap(model), loss="binary_crossentropy", metrics=kinds)
    return results(model, model.fit(x, y, batch_size=6, epochs=2, verbose=0), x, y)


@full
@case
def built_by_the_data(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])))
    return trained(model, model.fit(x, y, batch_size=7, epochs=2, verbose=0))


class OwnStep(keras.Model):
    """A user-defined train_step, with the optimizer under another name and no scaling of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(CLASSES)
        self.mine = keras.optimizers.SGD(0.1)

    def call(self, x: Any) -> Any:
        return self.layer(x)

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True))
        self.mine.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"mine": loss}


@case
def own_train_step(wrap: Wrap) -> Any:
    x, y = data()
    model = wrap(OwnStep())
    model.compile()
    model.fit(x, y, batch_size=6, epochs=2, verbose=0)
    return {"weights": model.get_weights(), "predict": model.predict(x, verbose=0)}


@extended
@case
def eager(wrap: Wrap) -> Any:
    x, y = data(13)
    model = compiled(wrap(mlp()), keras.optimizers.Adam(0.01), run_eagerly=True)
    return results(model, model.fit(x, y, batch_size=4, epochs=1, verbose=0), x, y)


@extended
@case
def several_steps_per_execution(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()), steps_per_execution=2)
    return results(model, model.fit(x, y, batch_size=6, epochs=2, verbose=0), x, y)


@full
@case
def fit_twice_and_recompiled(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()))
    model.fit(x, y, batch_size=7, verbose=0)
    model.fit(x[:20], y[:20], batch_size=4, verbose=0)
    compiled(model, keras.optimizers.Adam(0.01))
    return trained(model, model.fit(x, y, batch_size=7, verbose=0))


@case
def frozen_layer(wrap: Wrap) -> Any:
    x, y = data()
    model = mlp()
    model.layers[0].trainable = False
    model = compiled(wrap(model))
    return trained(model, model.fit(x, y, batch_size=6, epochs=2, verbose=0))


@full
@case
def early_stopping(wrap: Wrap) -> Any:
    """Decided on global logs, so the same on all ranks."""
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=0, min_delta=0.02, restore_best_weights=True)
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=0.05)
    return arrays(wrap, epochs=12, validation_split=0.3, callbacks=[stop, plateau])


class Positives(keras.metrics.Metric):
    """As in Keras's guide: `result` returns the very variable."""

    def __init__(self) -> None:
        super().__init__(name="positives")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(keras.ops.cast(keras.ops.sum(keras.ops.cast(y_pred > 0, "int32")), self.count.dtype))

    def result(self) -> Any:
        return self.count


@full
@case
def own_metric(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()), metrics=[Positives()])
    return results(model, model.fit(x, y, batch_size=8, epochs=2, verbose=0), x, y)


@full
@case
def stops_on_nan(wrap: Wrap) -> Any:
    x, y = data()
    x[20] = np.nan
    model = compiled(wrap(mlp()))
    history = model.fit(
        x, y, batch_size=8, epochs=4, shuffle=False, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()]
    )
    return {"weights": model.get_weights(), "steps": model.optimizer.iterations, "epochs": len(history.epoch)}


@case
def numbers_in_batches(wrap: Wrap) -> Any:
    x, _ = data()
    model = wrap(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    train = tf.data.Dataset.from_tensor_slices((x[:, 0], x[:, 1])).batch(8)
    return trained(model, model.fit(train, epochs=2, verbose=0))


class Pair(keras.Model):
    """Layers, their own optimizers and a step, but no call: the shape of Keras's GAN example."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = mlp(), mlp()
        self.loss = keras.metrics.Mean(name="loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.loss]

    def compile(self, one: Any, other: Any) -> None:
        super().compile()
        self.optimizers = {"one": one, "other": other}

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        for name, net in (("one", self.one), ("other", self.other)):
            with tf.GradientTape() as tape:
                error = keras.losses.sparse_categorical_crossentropy(y, net(x, training=True), from_logits=True)
                loss = tf.reduce_mean(error)
            variables = net.trainable_variables
            self.optimizers[name].apply(tape.gradient(loss, variables), variables)
            self.loss.update_state(error)
        return {"loss": self.loss.result()}


@full
@case
def two_nets_without_a_call(wrap: Wrap) -> Any:
    x, y = data()
    pair = Pair()
    model = wrap(pair)
    model.compile(keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.01))
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    return {"one": pair.one.get_weights(), "other": pair.other.get_weights(), "history": dict(history.history)}


@tf.custom_gradient
def no_gradient(x: Any) -> Any:
    return x, lambda upstream: tf.zeros((8, CLASSES), upstream.dtype)


class Constant(keras.layers.Layer):
    """Its weight has a gradient that TensorFlow can compute before the graph runs."""

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(8, CLASSES), name="w")

    def call(self, x: Any) -> Any:
        return tf.matmul(x, no_gradient(self.w) * 0 + no_gradient(self.w)) + tf.reduce_sum(tf.sign(self.w))


@full
@case
def constant_gradients(wrap: Wrap) -> Any:
    x, y = data()
    layers = [keras.layers.Dense(8, activation="tanh"), Constant(), keras.layers.Dense(CLASSES)]
    model = compiled(wrap(keras.Sequential([keras.Input((FEATURES,)), *layers])))
    return results(model, model.fit(x, y, batch_size=8, epochs=2, verbose=0), x, y)


class Unpacking(keras.Model):
    """Its step takes images, labels and two weights for each row out of a batch of any structure."""

    def __init__(self, take: Any) -> None:
        super().__init__()
        self.take = take
        self.hidden, self.out = keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(CLASSES)
        self.mean = keras.metrics.Mean(name="mean")

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(x))

    def train_step(self, batch: Any) -> Any:
        x, y, one, other = self.take(batch)
        with tf.GradientTape() as tape:
            error = self.compute_loss(x, y, self(x, training=True), one * other)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(error, variables), variables)
        self.mean.update_state(error)
        return self.compute_metrics(x, y, self(x), None)

    def test_step(self, batch: Any) -> Any:
        x, y, *_ = self.take(batch)
        return self.compute_metrics(x, y, self(x), None)


def unpacking(wrap: Wrap, batches: Any, take: Any, build: bool = False) -> Any:
    model = compiled(wrap(Unpacking(take)))
    if build:
        model(data()[0])
    history = model.fit(batches, epochs=2, validation_data=batches, verbose=0)
    return [trained(model, history), model.evaluate(batches, verbose=0)]


def rows_with_weights() -> tuple[Any, ...]:
    x, y = data()
    weights = np.linspace(0, 2, len(x))
    return x, y, weights, weights[::-1]


@full
@case
def own_step_on_dicts(wrap: Wrap) -> Any:
    batches = tf.data.Dataset.from_tensor_slices(dict(zip("xyab", rows_with_weights(), strict=True))).batch(6)
    return unpacking(wrap, batches, lambda batch: [batch[name] for name in "xyab"])


@full
@case
def own_step_on_dicts_of_a_built_model(wrap: Wrap) -> Any:
    batches = tf.data.Dataset.from_tensor_slices(dict(zip("xyab", rows_with_weights(), strict=True))).batch(6)
    return unpacking(wrap, batches, lambda batch: [batch[name] for name in "xyab"], build=True)


@full
@case
def own_step_on_four_parts(wrap: Wrap) -> Any:
    return unpacking(wrap, tf.data.Dataset.from_tensor_slices(rows_with_weights()).batch(6), lambda batch: batch)


@full
@case
def own_step_on_four_parts_of_whole_batches(wrap: Wrap) -> Any:
    """Where no rank is ever without rows, losses and metrics are built in the first step."""
    batches = tf.data.Dataset.from_tensor_slices(rows_with_weights()).batch(12, drop_remainder=True)
    return unpacking(wrap, batches, lambda batch: batch, build=True)
