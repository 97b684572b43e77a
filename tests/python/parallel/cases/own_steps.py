"""User-defined `train_step` and `test_step`, as in the guides and examples of Keras: their logs and weights."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from common import CLASSES, FEATURES, Wrap, case, data, full, trained
from keras import ops

M = keras.metrics


class Guide(keras.Model):
    """Keras's guide on customizing fit: the result of the metrics from compile is a dict among the logs."""

    def train_step(self, batch: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return self.updated(loss, y, y_pred)

    def test_step(self, batch: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = self(x, training=False)
        return self.updated(self.compute_loss(y=y, y_pred=y_pred), y, y_pred)

    def updated(self, loss: Any, y: Any, y_pred: Any) -> Any:
        for metric in self.metrics:
            metric.update_state(*((loss,) if metric.name == "loss" else (y, y_pred)))
        return {metric.name: metric.result() for metric in self.metrics}


@case
def nested_logs(wrap: Wrap) -> Any:
    x, _ = data()
    inputs = keras.Input((FEATURES,))
    model = wrap(Guide(inputs, keras.layers.Dense(1)(inputs)))
    model.compile("adam", "mse", metrics=["mae"])
    options = {"batch_size": 8, "verbose": 0}
    history = model.fit(x, x[:, :1], epochs=2, validation_data=(x[:11], x[:11, 1:2]), **options)
    seen: list[Any] = []
    see = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    model.fit(x, x[:, :1], callbacks=[see], **options)
    return {
        **trained(model, history),
        "seen": seen,
        "on batch": model.train_on_batch(x, x[:, :1], return_dict=True),
    }


class Encoder(keras.Model):
    """Keras's VAE example, with nested logs: results of metrics under other names, and numbers that are no metric's."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = keras.layers.Dense(4)
        self.decode = keras.layers.Dense(FEATURES)
        self.total, self.kl = M.Mean(name="total_loss"), M.Mean(name="kl_loss")
        self.last = M.Mean(name="last")

    @property
    def metrics(self) -> list[Any]:
        return [self.total, self.kl, self.last]

    def call(self, x: Any) -> Any:
        mean, variance = ops.split(self.encode(x), 2, axis=1)
        # In the example this is random: here it is a number of the row.
        return self.decode(mean + ops.exp(0.5 * variance) * ops.sin(100 * x[:, :2])), mean, variance

    def losses_of(self, x: Any) -> Any:
        decoded, mean, variance = self(x)
        error = ops.mean(ops.sum(ops.square(decoded - x), axis=1))
        kl = ops.mean(-0.5 * ops.sum(1 + variance - ops.square(mean) - ops.exp(variance), axis=1))
        return error, kl

    def train_step(self, batch: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            error, kl = self.losses_of(x)
            both = error + kl
        self.optimizer.apply_gradients(
            zip(tape.gradient(both, self.trainable_weights), self.trainable_weights, strict=True)
        )
        self.total.update_state(ops.stack([error, kl]))
        self.kl.update_state([kl])
        self.last.update_state(error)
        last = self.last.result()  # of this batch alone
        self.last.reset_state()
        logs = {"loss": self.total.result(), "kl_loss": self.kl.result(), "last": last}
        return {**logs, "parts": {"error": error, "kl": kl, "rate": self.optimizer.learning_rate}}

    def test_step(self, batch: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        error, kl = self.losses_of(x)
        self.total.update_state(error + kl)
        return {"loss": self.total.result(), "error": error}


@full
@case
def encoder_with_uneven_batches(wrap: Wrap) -> Any:
    x, _ = data()
    seen: list[Any] = []
    see = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    found = []
    for batch_size in (8, 12):  # the last batch: 5 rows, 1 row
        model = wrap(Encoder())
        model.compile(keras.optimizers.Adam(0.01))
        history = model.fit(x, batch_size=batch_size, epochs=2, verbose=0, callbacks=[see], validation_data=x[:11])
        found.append(trained(model, history))
    return [found, seen]


class Pairs(keras.Model):
    """Contrastive pairs: a loss for each pair, of two inputs and whether they belong together."""

    def __init__(self) -> None:
        super().__init__()
        self.net = keras.Sequential([keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(3)])
        self.distance = M.Mean(name="distance")

    def call(self, pair: Any) -> Any:
        return ops.norm(self.net(pair[0]) - self.net(pair[1]) + 1e-3, axis=1)

    def train_step(self, batch: Any) -> Any:
        pair, same = batch
        with tf.GradientTape() as tape:
            distance = self(pair, training=True)
            losses = same * distance**2 + (1 - same) * ops.square(ops.maximum(1 - distance, 0))
            loss = ops.mean(losses)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.distance.update_state(distance)
        return {"contrastive": loss, "distance": self.distance.result()}


@case
def contrastive_pairs(wrap: Wrap) -> Any:
    x, y = data()
    model = wrap(Pairs())
    model.compile(keras.optimizers.Adam(0.01))
    same = ops.convert_to_numpy(y == y[::-1]).astype("float64")
    history = model.fit((x, x[::-1]), same, batch_size=8, epochs=2, verbose=0)
    return trained(model, history)


class Gan(keras.Model):
    """Keras's WGAN-GP example: two nets, the critic with a penalty on the gradients by its input, a row at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = keras.Sequential([keras.Input((3,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)])
        self.generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(3)])

    def compile(self, critic: Any, generator: Any) -> None:
        super().compile()
        self.critic_optimizer, self.generator_optimizer = critic, generator

    def penalty(self, real: Any, fake: Any) -> Any:
        between = real + 0.3 * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            judged = self.critic(between, training=True)
        slopes = tape.gradient(judged, between)
        return ops.mean(ops.square(ops.sqrt(ops.sum(ops.square(slopes), axis=1)) - 1))

    def train_step(self, batch: Any) -> Any:
        real, noise = batch
        for _ in range(2):
            with tf.GradientTape() as tape:
                fake = self.generator(noise, training=True)
                loss = ops.mean(self.critic(fake, training=True)) - ops.mean(self.critic(real, training=True))
                loss += 10 * self.penalty(real, fake)
            variables = self.critic.trainable_variables
            self.critic_optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        with tf.GradientTape() as tape:
            lost = -ops.mean(self.critic(self.generator(noise, training=True), training=True))
        variables = self.generator.trainable_variables
        self.generator_optimizer.apply_gradients(zip(tape.gradient(lost, variables), variables, strict=True))
        return {"d_loss": loss, "g_loss": lost}


@case
def gan_with_a_gradient_penalty(wrap: Wrap) -> Any:
    x, _ = data()
    inner = Gan()
    model = wrap(inner)
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01))
    history = model.fit(x[:, :3], x[:, 3:], batch_size=8, epochs=2, verbose=0)
    return [inner.critic.get_weights(), inner.generator.get_weights(), dict(history.history)]


class Semi(keras.Model):
    """Keras's semi-supervised SimCLR zips batches of two sizes: the loss is a mean over either."""

    def __init__(self) -> None:
        super().__init__()
        self.net = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(CLASSES)])
        self.tracker, self.accuracy = M.Mean(name="loss"), M.SparseCategoricalAccuracy(name="accuracy")

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker, self.accuracy]

    def train_step(self, batch: Any) -> Any:
        unlabelled, (x, y) = batch
        with tf.GradientTape() as tape:
            logits = self.net(x)
            loss = ops.mean(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))
            loss += ops.mean(ops.square(self.net(unlabelled)))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.tracker.update_state(loss)
        self.accuracy.update_state(y, logits)
        return self.get_metrics_result()


@case
def batches_of_two_sizes(wrap: Wrap) -> Any:
    x, y = data(36)
    found = []
    for drop in (True, False):
        unlabelled = tf.data.Dataset.from_tensor_slices(x).batch(12, drop_remainder=drop)
        labelled = tf.data.Dataset.from_tensor_slices((x[:18], y[:18])).batch(6, drop_remainder=drop)
        model = wrap(Semi())
        model.compile(keras.optimizers.Adam(0.01))
        found.append(trained(model, model.fit(tf.data.Dataset.zip((unlabelled, labelled)), epochs=2, verbose=0)))
    return found


class Tiles(keras.Model):
    """Predicts four tiles of each row, and one number for it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def predict_step(self, batch: Any) -> Any:
        x = batch[0] if isinstance(batch, tuple) else batch
        tiles = ops.reshape(x, (-1, 2))
        return {"tiles": self(tiles, training=False), "whole": ops.sum(x, axis=1), "all": ops.reshape(x, (-1, 4, 2))}


@case
def several_predictions_for_a_row(wrap: Wrap) -> Any:
    model = wrap(Tiles())
    model.build((None, 2))
    rows = data()[0][:, :1] * range(1, 9)
    found = [model.predict(rows, batch_size=size, verbose=0) for size in (4, 9, 3)]
    return [*found, model.predict_on_batch(rows[:7])]
