"""Layers that couple rows are named before the first step, without false alarms and side effects."""

from __future__ import annotations

import random
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tarantella._job import log
from tarantella.keras.trials import coupling, sandbox


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(sandbox, "_SECONDS", 100.0)


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


class Shaped(keras.layers.Layer):
    """Returns more than rows: a table, and steps before rows."""

    def build(self, shape):
        self.table = self.add_weight(shape=(5, 4))

    def call(self, x):
        return ops.reshape(x, (-1, 4)), self.table * 1.0, ops.transpose(ops.reshape(x, (-1, 2, 4)), (1, 0, 2))


class Several(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.shaped = layers.Dense(8), Shaped()

    def call(self, x):
        return self.shaped(self.dense(x))


class Near(layers.Layer):
    """How near each row is to each of some prototypes, at most."""

    def call(self, x, prototypes):
        near = ops.softmax(ops.matmul(x, ops.transpose(prototypes)))
        return ops.sum(near * ops.arange(1.0, ops.shape(prototypes)[0] + 1), -1)


class Prototypes(keras.Model):
    def __init__(self):
        super().__init__()
        self.near, self.prototypes = Near(), self.add_weight(shape=(5, 6))

    def call(self, x):
        return self.near(x + tf.random.normal(tf.shape(x)), self.prototypes * 1.0)


class Pairs(layers.Layer):
    def __init__(self, stacked, **options):
        super().__init__(**options)
        self.stacked = stacked

    def call(self, one, other):
        one, other = (ops.concatenate([x] * self.stacked) for x in (one, other))
        return ops.matmul(one, ops.transpose(other))


class Fixed(layers.Layer):
    def call(self, x):
        return ops.reshape(x, (7, 8))


def warned(model, *specs, monkeypatch):
    said = []
    monkeypatch.setattr(log, "warn_once", said.append)
    coupling.say(model, specs if len(specs) > 1 else specs[0])
    return said


def vectors():
    return tf.TensorSpec([None, 6], tf.float32)


def stack(*more):
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), *more, layers.Dense(3)])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_the_layer_that_couples_rows_is_named(monkeypatch, policy):
    keras.utils.set_random_seed(1)  # rounding hides it for a few of many thousand initial values
    keras.config.set_dtype_policy(policy)
    try:
        model = stack(layers.Dropout(0.5), layers.BatchNormalization(), Centered(name="mine"), layers.Dense(4))
        (line,) = warned(model, vectors(), monkeypatch=monkeypatch)
    finally:
        keras.config.set_dtype_policy("float32")
    assert line.startswith("Centered 'mine': the output for a row depends on which rows share a batch")
    assert warned(model, vectors(), monkeypatch=monkeypatch) == []  # once is enough


def test_a_model_that_couples_rows_itself_is_named(monkeypatch):
    keras.utils.set_random_seed(1)  # products of embeddings may add up to nearly nothing
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
        (Several, vectors()),
        (Prototypes, vectors()),
        (pictures, tf.TensorSpec([None, None, None, 3], tf.uint8)),
        (words, tf.TensorSpec([None, None], tf.string)),
    ],
)
def test_random_layers_and_other_shapes_are_not_reported(make, spec):
    assert coupling._coupled(make(), spec) == []


@pytest.mark.parametrize("make", [lambda: stack(Fixed()), keras.Model])
def test_models_that_cannot_be_tried_are_not_reported(monkeypatch, make):
    model = make()
    with pytest.raises((tf.errors.InvalidArgumentError, NotImplementedError)):
        coupling._coupled(model, vectors())
    assert warned(model, vectors(), monkeypatch=monkeypatch) == []


@pytest.mark.parametrize("stacked", [1, 2])  # SimCLR has both views in one batch
def test_numbers_of_pairs_of_rows_are_named(monkeypatch, stacked):
    first, second = keras.Input((6,)), keras.Input((6,))
    model = keras.Model([first, second], Pairs(stacked, name="pairs")(layers.Dense(3)(first), layers.Dense(3)(second)))
    (line,) = warned(model, vectors(), vectors(), monkeypatch=monkeypatch)
    assert line.startswith("Pairs 'pairs': ")


def test_a_long_sequence_is_not_tried_out(monkeypatch):
    inputs = keras.Input((20_000, 2))
    model = keras.Model(inputs, Centered()(layers.Bidirectional(layers.LSTM(2))(inputs)))
    begin = time.monotonic()
    told = []
    monkeypatch.setattr(log.logger, "info", told.append)
    assert warned(model, tf.TensorSpec([None, 20_000, 2]), monkeypatch=monkeypatch) == []
    assert time.monotonic() - begin < 30  # it took minutes
    assert "a recurrent layer goes through more than 100 steps" in told[0]


def test_a_slow_model_is_given_up(monkeypatch):
    model = stack(Centered())
    monkeypatch.setattr(sandbox, "_SECONDS", -1.0)
    told = []
    monkeypatch.setattr(log.logger, "info", told.append)
    assert warned(model, vectors(), monkeypatch=monkeypatch) == []
    assert told == ["the model is not checked for layers that couple rows: it takes more than -1 s"]
    assert not any("call" in vars(layer) for layer in model.layers)


def recurrent():
    return stack(layers.Reshape((2, 4)), layers.Bidirectional(layers.LSTM(3)), layers.BatchNormalization())


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (recurrent, True),
        (lambda: stack(layers.LayerNormalization(), layers.Dropout(0.5)), True),
        (lambda: keras.Sequential([layers.LayerNormalization(axis=0)]), False),
        (lambda: stack(layers.Softmax(axis=-2)), False),
        (lambda: stack(layers.Activation(lambda x: x - ops.mean(x, axis=0))), False),
        (lambda: stack(layers.Dense(3, lambda x: x - ops.mean(x, 0))), False),
        (lambda: keras.Sequential([layers.EinsumDense("ab,ac->bc", (8, 3))]), False),
        (lambda: stack(layers.Lambda(ops.softmax, arguments={"axis": 0})), False),
        (lambda: keras.Sequential([stack(Centered()), layers.Reshape((3,))]), False),
        (lambda: by_operation(), False),
        (Recommender, False),
    ],
)
def test_models_of_keras_layers_only_are_not_tried(make, expected):
    model = make()
    model.compile("sgd", lambda y, p: ops.mean(y - p))
    assert sandbox.is_rowwise(model) == expected


def by_operation():
    inputs = keras.Input((6,))
    return keras.Model(inputs, inputs - ops.mean(inputs, 0, keepdims=True))


class Compiled(layers.Layer):
    """Calls layers in a graph of one signature, and keeps what it has seen in TensorFlow's variables."""

    def __init__(self):
        super().__init__()
        self.drop, self.normalize = layers.Dropout(0.5), layers.BatchNormalization()
        self.seen, self.more = tf.Variable(0.0, trainable=False), [tf.Variable(0.0, trainable=False)]
        self.generator = tf.random.Generator.from_seed(1)

    def build(self, shape):
        self.normalize.build((None, 8))

    @tf.function(input_signature=[tf.TensorSpec([None, 8])])
    def encode(self, x):
        return self.drop(self.normalize(x, training=True), training=True)

    def call(self, x):
        for variable in (self.seen, *self.more):
            variable.assign_add(1.0)
        noise = tf.random.normal([]) + self.generator.normal([]) + random.random() + np.random.rand()
        return self.encode(x) + 0.0 * noise


class Whole(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.inner, self.last = layers.Dense(8), Compiled(), Centered()

    def call(self, x, training=False):
        return self.last(self.inner(self.dense(x)), training=training)


def drawn(generator):
    return [float(x) for x in (tf.random.normal([]), generator.normal([]), random.random(), np.random.rand())]


def test_functions_variables_and_generators_are_as_before(monkeypatch):
    def start():
        keras.utils.set_random_seed(7)
        model = Whole()
        model.inner.build(None)
        model.dense.build((None, 6))
        model.built = True
        drawn(model.inner.generator)
        return model

    expected = drawn(start().inner.generator)
    model = start()
    assert warned(model, vectors(), monkeypatch=monkeypatch)
    assert drawn(model.inner.generator) == expected
    assert (float(model.inner.seen), float(model.inner.more[0])) == (0.0, 0.0)
    assert not tf.config.functions_run_eagerly()
    output = model.inner(np.random.rand(64, 8).astype("float32"))
    assert 0.2 < np.mean(output == 0) < 0.8
    assert np.any(model.inner.normalize.moving_mean != 0)


def test_a_trial_leaves_nothing_behind(monkeypatch):
    model = stack(Counting(), layers.BatchNormalization(), layers.Dropout(0.5), Centered())
    before = [np.asarray(v) for v in (*model.variables, *model.layers[1].metric.variables)]
    attributes = [set(vars(layer)) for layer in model.layers]
    assert warned(model, vectors(), monkeypatch=monkeypatch)
    after = [np.asarray(v) for v in (*model.variables, *model.layers[1].metric.variables)]
    np.testing.assert_equal(after, before)
    assert [set(vars(layer)) for layer in model.layers] == attributes
    assert not model.losses
