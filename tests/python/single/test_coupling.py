"""Models whose rows act on each other: found by name before the first step, with no false alarm and no trace."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tarantella import _log
from tarantella.keras import coupling


class Centered(layers.Layer):
    def call(self, x, training=False):
        return x - ops.mean(x, axis=0) if training else x


class Recommender(keras.Model):
    """Of keras.io, whose tensordot sums over the rows too."""

    def __init__(self):
        super().__init__()
        self.users, self.bias = layers.Embedding(60, 5), layers.Embedding(60, 1)

    def call(self, x):
        users = self.users(x[:, 0])
        return ops.sigmoid(ops.tensordot(users, self.users(x[:, 1]), 2) + self.bias(x[:, 0]))


class Sampling(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + keras.random.normal(ops.shape(x), seed=self.seeds)


class Counting(layers.Layer):
    """Keeps what it has seen, and adds a loss."""

    def __init__(self):
        super().__init__()
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.metric = keras.metrics.Mean()

    def call(self, x):
        self.seen.assign_add(1.0)
        self.metric.update_state(x)
        self.add_loss(ops.mean(x))
        return x


class Fixed(layers.Layer):
    def call(self, x):
        return ops.reshape(x, (7, 8))


def warned(model, *specs, monkeypatch):
    said = []
    monkeypatch.setattr(_log, "warn_once", said.append)
    coupling.say(model, specs if len(specs) > 1 else specs[0])
    return said


def vectors():
    return tf.TensorSpec([None, 6], tf.float32)


def stack(*more):
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), *more, layers.Dense(3)])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_the_layer_that_couples_rows_is_named(monkeypatch, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = stack(layers.Dropout(0.5), layers.BatchNormalization(), Centered(name="mine"), layers.Dense(4))
        (line,) = warned(model, vectors(), monkeypatch=monkeypatch)
    finally:
        keras.config.set_dtype_policy("float32")
    assert line.startswith("Centered 'mine': the output for a row depends on which rows share a batch")
    assert warned(model, vectors(), monkeypatch=monkeypatch) == []  # once is enough


def test_a_model_that_couples_rows_itself_is_named(monkeypatch):
    model = Recommender()
    model(np.zeros((2, 2), np.int64))
    (line,) = warned(model, tf.TensorSpec([None, 2], tf.int64), monkeypatch=monkeypatch)
    assert line.startswith("Recommender 'recommender': ")


def pictures():
    inputs = keras.Input((None, None, 3), dtype="uint8")
    x = layers.BatchNormalization(synchronized=True)(layers.Conv2D(4, 3)(layers.Rescaling(1 / 255)(inputs)))
    return keras.Model(inputs, layers.GlobalMaxPooling2D()(layers.RandomFlip()(x)))


def words():
    inputs = keras.Input((None,), dtype="string")
    x = layers.Embedding(5, 4, mask_zero=True)(layers.StringLookup(vocabulary=["0", "1"])(inputs))
    x = layers.MultiHeadAttention(2, 3, dropout=0.3)(x, x)
    return keras.Model(inputs, layers.Bidirectional(layers.LSTM(3, dropout=0.2))(x))


@pytest.mark.parametrize(
    ("make", "spec"),
    [
        (lambda: stack(layers.GaussianNoise(0.1), Sampling(), layers.LayerNormalization()), vectors()),
        (lambda: stack(layers.SpectralNormalization(layers.Dense(4)), layers.UnitNormalization()), vectors()),
        (lambda: stack(Fixed()), vectors()),  # cannot be tried out
        (keras.Model, vectors()),
        (pictures, tf.TensorSpec([None, None, None, 3], tf.uint8)),
        (words, tf.TensorSpec([None, None], tf.string)),
    ],
)
def test_what_is_random_or_cannot_be_tried_is_no_alarm(monkeypatch, make, spec):
    model = make()
    assert warned(model, spec, monkeypatch=monkeypatch) == []


def test_nothing_is_left_behind(monkeypatch):
    model = stack(Counting(), layers.BatchNormalization(), layers.Dropout(0.5), Centered())
    before = [np.asarray(v) for v in (*model.variables, *model.layers[1].metric.variables)]
    attributes = [set(vars(layer)) for layer in model.layers]
    assert warned(model, vectors(), monkeypatch=monkeypatch)
    after = [np.asarray(v) for v in (*model.variables, *model.layers[1].metric.variables)]
    np.testing.assert_equal(after, before)
    assert [set(vars(layer)) for layer in model.layers] == attributes
    assert not model.losses
