"""A `train_step` and `test_step` of the user's own, as in the guides and examples of Keras: what they log and train."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import FEATURES, Wrap, case, data, trained
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
        self.total.update_state(both)
        self.kl.update_state(kl)
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
