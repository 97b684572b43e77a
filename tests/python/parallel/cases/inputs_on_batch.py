"""train_on_batch, test_on_batch and predict_on_batch take global batches."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import CLASSES, FEATURES, Wrap, case, compiled, data, full, mlp


def starts(batch: int, samples: int = 37) -> Any:
    return range(0, samples, batch)


@full
@case
def train_on_batches(wrap: Wrap) -> Any:
    """The last batch has one row."""
    x, y = data()
    model = compiled(wrap(mlp()), keras.optimizers.Adam(0.01))
    logs = [model.train_on_batch(x[i : i + 9], y[i : i + 9]) for i in starts(9)]
    tested = [model.test_on_batch(x[i : i + 12], y[i : i + 12], return_dict=True) for i in starts(12)]
    return [logs, tested, model.predict_on_batch(x[:7]), model.predict_on_batch(x[:1]), model.get_weights()]


@case
def train_on_weighted_batches(wrap: Wrap) -> Any:
    x, y = data()
    weight = np.linspace(0, 2, len(x))
    model = compiled(wrap(mlp()), weighted_metrics=["accuracy"])
    some = {"return_dict": True}
    logs = [model.train_on_batch(x[i : i + 8], y[i : i + 8], weight[i : i + 8], **some) for i in starts(8)]
    logs += [model.train_on_batch(x[:9], y[:9], class_weight={0: 0.5, 1: 2.0, 2: 1.0}, **some)]
    logs += [model.test_on_batch(x[:9], y[:9], weight[:9], **some)]
    return [logs, model.get_weights()]


@case
def train_on_sparse_batches(wrap: Wrap) -> Any:
    x, y = data()
    x *= np.abs(x) > 0.8
    inputs = keras.Input((FEATURES,), sparse=True)
    model = compiled(wrap(keras.Model(inputs, keras.layers.Dense(CLASSES)(inputs))))
    batches = [tf.sparse.from_dense(x[i : i + 9]) for i in starts(9)]
    logs = [model.train_on_batch(batch, y[i : i + 9]) for batch, i in zip(batches, starts(9), strict=True)]
    return [logs, model.test_on_batch(batches[0], y[:9]), model.predict_on_batch(batches[1]), model.get_weights()]


@case
def train_on_batches_of_structures(wrap: Wrap) -> Any:
    a, b = keras.Input((FEATURES,), name="a"), keras.Input((2,), name="b")
    hidden = keras.layers.Concatenate()([a, b])
    model = wrap(keras.Model({"a": a, "b": b}, {"c": keras.layers.Dense(CLASSES)(hidden), "d": hidden}))
    model.compile("sgd", {"c": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "d": None})
    x, y = data(8)
    inputs = {"a": tf.constant(x), "b": x[:, :2]}
    logs = [model.train_on_batch(inputs, {"c": y, "d": x}) for _ in range(2)]
    return [logs, model.predict_on_batch(inputs), model.get_weights()]


@full
@case
def train_on_batches_between_fits(wrap: Wrap) -> Any:
    """Built by its data, recompiled and trained in both ways."""
    x, y = data()
    model = compiled(wrap(keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(CLASSES)])))
    logs = [model.train_on_batch(x[:8], y[:8])]
    model.fit(x, y, batch_size=8, verbose=0)
    logs += [model.train_on_batch(x[:6], y[:6])]
    compiled(model, keras.optimizers.Adam(0.01), metrics=["mae"], loss="mse")
    logs += [model.train_on_batch(x[:7], x[:7, :CLASSES]), model.train_on_batch(x[:7], x[:7, :CLASSES])]
    return [logs, model.get_weights()]


@case
def generator_against_discriminator(wrap: Wrap) -> Any:
    """Two models that share layers, each with an optimizer of its own, one batch after the other."""
    x, _ = data()
    critic = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
    judge = wrap(critic)
    judge.compile(keras.optimizers.SGD(0.1), "mse")
    maker = keras.Sequential([keras.Input((2,)), keras.layers.Dense(FEATURES)])
    critic.trainable = False
    noise = keras.Input((2,))
    both = wrap(keras.Model(noise, critic(maker(noise))))
    both.compile(keras.optimizers.Adam(0.01), "mse")
    logs = []
    for i in starts(9):
        real, drawn = x[i : i + 9], x[i : i + 9, 3:]
        critic.trainable = True
        logs.append(judge.train_on_batch(real, np.ones((len(real), 1))))
        critic.trainable = False
        logs.append(both.train_on_batch(drawn, np.ones((len(drawn), 1))))
    return [logs, critic.get_weights(), maker.get_weights()]
