"""What a model shows on a batch and on two parts of it, without false alarms and side effects."""

from __future__ import annotations

import gc
import math
import random
import weakref
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tarantella._backend import backend
from tarantella.keras import private
from tarantella.keras.step import batch_dependent, first_batch, gradients, trial
from tarantella.keras.step.trial import LossReduction, LossValues


class Centered(layers.Layer):
    def call(self, x, training=False):
        return x - ops.mean(x, axis=0) if training else x


class Recommender(keras.Model):
    """Of keras.io, whose tensordot sums over the rows too."""

    def __init__(self, **options):
        super().__init__(**options)
        self.users, self.bias = (
            layers.Embedding(60, 5, keras.initializers.RandomNormal(stddev=1.0)),
            layers.Embedding(60, 1),
        )

    def call(self, x):
        users = self.users(x[:, 0])
        return ops.sigmoid(ops.tensordot(users, self.users(x[:, 1]), 2) + self.bias(x[:, 0]))


class Sampling(layers.Layer):
    """Adds noise, and what is a mean but for it."""

    def __init__(self, draw=None):
        super().__init__()
        self.seeds, self.draw = keras.random.SeedGenerator(1), draw

    def call(self, x):
        noise = keras.random.normal(ops.shape(x), seed=self.seeds) if self.draw is None else self.draw(ops.shape(x))
        self.add_loss(ops.mean(x + 0.01 * noise))
        return x + noise


class Shaped(layers.Layer):
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


class Prototypes(keras.Model):
    """How near each row is to each of some prototypes."""

    def __init__(self):
        super().__init__()
        self.prototypes = self.add_weight(shape=(5, 6))

    def call(self, x):
        near = ops.softmax(ops.matmul(x, ops.transpose(self.prototypes)))
        return ops.sum(near * ops.arange(1.0, 6.0), -1)


class Pairs(layers.Layer):
    def __init__(self, stacked, **options):
        super().__init__(**options)
        self.stacked = stacked

    def call(self, one, other):
        one, other = (ops.concatenate([x] * self.stacked) for x in (one, other))
        return ops.matmul(one, ops.transpose(other))


class Fixed(layers.Layer):
    def call(self, x):
        return ops.reshape(x, (int(x.shape[0]), 8))


class Adds(layers.Layer):
    def __init__(self, *functions):
        super().__init__()
        self.functions = functions

    def call(self, x):
        self.add_loss([function(x) for function in self.functions])
        return x


def measured(model, *inputs, trains=True):
    x = inputs if len(inputs) > 1 else inputs[0]
    return trial.Trial(model, x, trains, batch_dependent.candidates(model), batch_dependent.by_design(model)).measure(
        x, len(inputs[0])
    )


def changes(model, *inputs):
    every = private.every_layer(model)
    return {first_batch.title(every[i]): change for i, change in measured(model, *inputs).batch_dependent.items()}


def vectors(rows=9):
    return tf.constant(np.random.default_rng(rows).normal(size=(rows, 6)).astype("float32"))


def stack(*more):
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), *more, layers.Dense(3)])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_the_layer_that_couples_rows_is_named(policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = stack(layers.Dropout(0.5), layers.BatchNormalization(), Centered(name="mine"), layers.Dense(4))
        ((name, change),) = changes(model, vectors()).items()
        assert name == "Centered 'mine'" and 0.01 < change < 10
        assert measured(model, vectors(), trains=False).batch_dependent == {}
    finally:
        keras.config.set_dtype_policy("float32")


def test_models_that_couple_rows_themselves_are_named():
    rows = np.random.default_rng(0).integers(0, 60, (8, 2))
    assert set(changes(Recommender(name="r"), tf.constant(rows))) == {"Recommender 'r'"}
    inputs = keras.Input((6,))
    model = keras.Model(inputs, inputs - ops.mean(inputs, 0, keepdims=True), name="by_operation")
    assert set(changes(model, vectors())) == {"Functional 'by_operation'"}


@pytest.mark.parametrize("stacked", [1, 2])  # SimCLR has both views in one batch
def test_numbers_of_pairs_of_rows_are_named(stacked):
    first, second = keras.Input((6,)), keras.Input((6,))
    model = keras.Model([first, second], Pairs(stacked, name="p")(layers.Dense(3)(first), layers.Dense(3)(second)))
    assert changes(model, vectors(), vectors()) == {"Pairs 'p'": math.inf}


def pictures():
    inputs = keras.Input((None, None, 3), dtype="uint8")
    x = layers.BatchNormalization(synchronized=True)(layers.Conv2D(4, 3)(layers.Rescaling(1 / 255)(inputs)))
    return keras.Model(inputs, layers.Lambda(lambda x: x * 2)(layers.GlobalMaxPooling2D()(layers.RandomFlip()(x))))


def words():
    inputs = keras.Input((None,), dtype="string")
    x = layers.Embedding(5, 4, mask_zero=True)(layers.StringLookup(vocabulary=["0", "1"])(inputs))
    x = layers.Lambda(lambda x: x * 2)(layers.MultiHeadAttention(2, 3, dropout=0.3)(x, x))
    return keras.Model(inputs, layers.Bidirectional(layers.LSTM(3, dropout=0.2))(x))


RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: stack(layers.GaussianNoise(0.1), Sampling(), layers.LayerNormalization()), vectors()),
        (lambda: stack(Sampling(tf.random.normal), Adds(ops.mean)), vectors()),
        (lambda: stack(Sampling(tf.random.Generator.from_seed(1).normal), Adds(ops.mean)), vectors()),
        (lambda: stack(layers.SpectralNormalization(layers.Dense(4)), layers.UnitNormalization(), Adds()), vectors()),
        (Several, vectors()),
        (Prototypes, vectors()),
        (pictures, tf.constant(RANDOM.integers(0, 256, (5, 12, 12, 3)), tf.uint8)),
        (words, tf.constant(RANDOM.integers(0, 2, (6, 4)).astype(str))),
    ],
)
def test_random_layers_and_other_shapes_are_not_reported(make, x):
    assert changes(make(), x) == {}


def test_layers_of_inputs_that_are_not_dense():
    words = keras.Input((9,), sparse=True)
    model = keras.Model(words, Adds(lambda x: ops.sum(x**2))(layers.Dense(3)(words)))
    sparse = tf.sparse.from_dense(RANDOM.integers(0, 2, (5, 9)).astype("float32"))
    (figures,) = (
        trial.Trial(model, sparse, True, batch_dependent.candidates(model), ()).measure(sparse, 5).added.values()
    )
    assert figures.reduction() is LossReduction.SUM


@pytest.mark.parametrize("make", [lambda: stack(Fixed()), keras.Model])
def test_models_that_cannot_be_tried_raise(make):
    with pytest.raises((TypeError, NotImplementedError)):
        measured(make(), vectors())


def recurrent():
    return stack(layers.Reshape((2, 4)), layers.Bidirectional(layers.LSTM(3)), layers.BatchNormalization())


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (recurrent, []),
        (lambda: stack(layers.LayerNormalization(), layers.Dropout(0.5)), []),
        (lambda: keras.Sequential([layers.LayerNormalization(axis=0, name="one")]), ["one"]),
        (lambda: stack(layers.Softmax(axis=-2, name="one")), ["one"]),
        (lambda: stack(layers.Activation(lambda x: x - ops.mean(x, axis=0), name="one")), ["one"]),
        (lambda: stack(layers.Dense(3, lambda x: x - ops.mean(x, 0), name="one")), ["one"]),
        (lambda: stack(layers.Dense(3, activity_regularizer=ops.mean, name="one")), ["one"]),
        (lambda: keras.Sequential([layers.EinsumDense("ab,ac->bc", (8, 3), name="one")]), ["one"]),
        (lambda: stack(layers.Lambda(ops.softmax, arguments={"axis": 0}, name="one")), ["one"]),
        (lambda: keras.Sequential([stack(Centered(name="one")), layers.Reshape((3,))]), ["one"]),
        (lambda: Recommender(name="one"), ["one"]),
    ],
)
def test_layers_of_keras_alone_are_not_watched(make, names):
    model = make()
    model.compile("sgd", lambda y, p: ops.mean(y - p))
    every = private.every_layer(model)
    candidates = [every[i] for i in batch_dependent.candidates(model)]
    assert [each.name for each in candidates if not private.is_of_keras(type(each)) or each.name == "one"] == names
    assert bool(candidates) == bool(names)


LOSSES = {
    "a mean": (lambda x: ops.mean(x**2), LossReduction.MEAN),
    "a mean of two axes": (lambda x: ops.mean(ops.max(x, -1)), LossReduction.MEAN),
    "a constant": (lambda x: ops.convert_to_tensor(0.3), LossReduction.MEAN),
    "a sum": (lambda x: 1e-6 * ops.sum(x**2), LossReduction.SUM),
    "a value for each row": (lambda x: ops.sum(x**2, -1), LossReduction.SUM),
    "0": (lambda x: 0 * ops.sum(x), LossReduction.UNKNOWN),
    "inf": (lambda x: ops.sum(x) / 0, LossReduction.UNKNOWN),
    "a variance": (lambda x: ops.mean(ops.var(x, 0)), LossReduction.NEITHER),
    "pairs": (lambda x: ops.sum(ops.matmul(x, ops.transpose(x)) ** 2), LossReduction.NEITHER),
    "a root": (lambda x: ops.sqrt(ops.sum(x**2)), LossReduction.NEITHER),
    "a ratio": (lambda x: ops.sum(x**2) / ops.sum(ops.cast(x > 0.5, x.dtype)), LossReduction.NEITHER),
}


@pytest.mark.parametrize("what", LOSSES)
def test_what_a_layer_adds_is_told(what):
    function, verdict = LOSSES[what]
    found = measured(stack(Adds(ops.mean, function)), vectors())
    assert [each.reduction() for each in found.added.values()] == [LossReduction.MEAN, verdict]
    assert [number for _, number in found.added] == [0, 1]


@pytest.mark.parametrize("draw", [None, tf.random.normal])
def test_random_losses_are_told_within_their_scatter(draw):
    tf.random.set_seed(1)
    (figures,) = measured(stack(Sampling(draw)), tf.constant(np.ones((64, 6)), tf.float32)).added.values()
    assert figures.again != figures.whole
    assert figures.reduction() is LossReduction.MEAN


def test_figures_that_could_be_both_show_nothing():
    assert LossValues(1.0, 3.0, (1.0, 0.5), (4, 4)).reduction() is LossReduction.UNKNOWN
    assert LossValues(1.0, 1.1, (0.55, 0.5), (4, 4)).reduction() is LossReduction.SUM
    assert LossValues(1.0, 1.0, (0.5, 0.4), (4, 4)).reduction() is LossReduction.NEITHER


def test_random_values_that_are_near_by_chance_are_still_random():
    assert LossValues(1.0, 1.00005, (1.0005, 1.0), (4, 4)).reduction() is LossReduction.MEAN


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
        for _ in tf.range(2):
            self.more[0].assign_add(1.0)
        return self.drop(self.normalize(x, training=True), training=True)

    def call(self, x):
        self.seen.assign_add(1.0)
        return self.encode(x) + 0.0 * self.generator.normal([]) + 0.0 * random.random() * np.random.rand()


class Whole(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.inner, self.last = layers.Dense(8), Compiled(), Centered()
        self.metric, self.calls = keras.metrics.Mean(), self.add_weight(trainable=False)

    def call(self, x, training=False):
        self.calls.assign_add(1.0)
        self.metric.update_state(x)
        self.add_loss(ops.mean(x))
        return self.last(self.inner(self.dense(x)), training=training)


def drawn(generator):
    return [float(x) for x in (tf.random.normal([]), generator.normal([]), random.random(), np.random.rand())]


def test_a_trial_leaves_nothing_behind():
    def start():
        keras.utils.set_random_seed(7)
        model = Whole()
        model.inner.build(None)
        model.dense.build((None, 6))
        model.metric.update_state(1.0)
        model.built = True
        drawn(model.inner.generator)
        return model

    def kept(model):
        inner = model.inner
        return [np.array(v) for v in (*model.variables, *model.metric.variables, inner.seen, *inner.more)]

    gradients.install()
    expected, values = drawn(start().inner.generator), kept(start())
    model = start()
    attributes = [set(vars(layer)) for layer in private.every_layer(model)]
    assert measured(model, vectors()).added
    np.testing.assert_equal(kept(model), values)
    assert drawn(model.inner.generator) == expected
    assert [set(vars(layer)) for layer in private.every_layer(model)] == attributes
    assert not model.losses
    # The user's function is traced anew, with neither hooks nor inference mode in it.
    output = model.inner(np.random.rand(64, 8).astype("float32"))
    assert 0.2 < np.mean(output == 0) < 0.8
    assert np.any(model.inner.normalize.moving_mean != 0)


def test_a_function_that_a_sandbox_has_traced_does_not_keep_the_model():
    doubled = tf.function(lambda x: 2 * x)  # as at module level: it stays
    gradients.install()
    model = stack()
    found = weakref.ref(model)
    run = backend.sandboxed(lambda data, model=model: doubled(model(data)), variables=[])
    np.testing.assert_array_equal(run(tf.zeros((1, 6))), np.zeros((1, 3)))
    del model, run
    gc.collect()
    assert found() is None


def test_large_outputs_are_sampled():
    found: list[Any] = []

    class Wide(layers.Layer):
        def call(self, x):
            found.append(trial._sample(ops.repeat(x, 5000, axis=-1), True))
            return x - ops.mean(x, 0)

    assert changes(stack(Wide(name="w")), vectors())
    assert all(sample.shape[0] is None for _, sample in found)
    shape, sample = trial._sample(tf.ones((3, 100, 50)), True)
    assert shape.numpy().tolist() == [3, 100, 50] and 1024 <= sample.shape[1] <= 2048
