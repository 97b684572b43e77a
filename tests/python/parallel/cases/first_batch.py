"""Models whose layers add losses or couple rows: the first batch is looked at, then given to the first step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import FEATURES, Wrap, case, compiled, data, full, results, trained
from keras import ops

X = data()[0]
Y = X[:, :2]


class Adds(keras.layers.Layer):
    """Adds what its function computes of the outputs, and counts how often it is called."""

    def __init__(self, function: Callable[[Any], Any] = lambda x: 0.01 * ops.sum(ops.square(x))) -> None:
        super().__init__()
        self.function = function
        self.calls = self.add_weight(initializer="zeros", trainable=False)
        self.more = tf.Variable(0, trainable=False)

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        self.more.assign_add(1)
        self.add_loss(self.function(x))
        return x


def model_of(wrap: Wrap, *layers: Any, **options: Any) -> Any:
    keras.utils.set_random_seed(5)
    net = [keras.layers.Dense(6, "tanh"), *(layers or [Adds()]), keras.layers.Dense(2)]
    model = wrap(keras.Sequential([keras.Input((FEATURES,)), *net]))
    return compiled(model, keras.optimizers.SGD(0.02), loss="mse", metrics=[], **options)


def batches(size: int = 6) -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(50, seed=3).batch(size)


@case
def reshuffled_epochs(wrap: Wrap) -> Any:
    model = model_of(wrap)
    history = model.fit(batches(), epochs=3, validation_data=batches(9), verbose=0)
    counted = [np.asarray(model.layers[1].calls), np.asarray(model.layers[1].more)]
    return [trained(model, history), counted, model.evaluate(batches(), verbose=0)]


@full
@case
def eager_steps(wrap: Wrap) -> Any:
    model = model_of(wrap, run_eagerly=True)
    return trained(model, model.fit(batches(9).take(4), epochs=2, verbose=0))


@full
@case
def compiled_by_xla(wrap: Wrap) -> Any:
    model = model_of(wrap, jit_compile=True)
    return trained(model, model.fit(batches().take(4), epochs=2, verbose=0))


@case
def generators(wrap: Wrap) -> Any:
    read: list[int] = []

    def source() -> Any:
        for epoch in range(2):
            for first in range(0, len(X), 8):
                read.append(first)
                yield X[first : first + 8] * (1 + epoch), Y[first : first + 8]

    model = model_of(wrap)
    history = model.fit(source(), epochs=2, steps_per_epoch=5, verbose=0)
    return [trained(model, history), len(read)]


@case
def evaluated_first(wrap: Wrap) -> Any:
    model = model_of(wrap)
    found = [model.evaluate(X, Y, batch_size=7, verbose=0), model.test_on_batch(X[:9], Y[:9])]
    found += [model.train_on_batch(X[:8], Y[:8]), model.train_on_batch(X[8:20], Y[8:20])]
    return [found, results(model, model.fit(X, Y, batch_size=6, verbose=0), X, Y)]


class AddsAsItTrains(keras.layers.Layer):
    """What it adds first is a sum in training and a mean in evaluation."""

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.add_loss(0.01 * ops.sum(ops.square(x)))
        self.add_loss(ops.mean(ops.abs(x)))
        return x


@case
def another_loss_in_evaluation(wrap: Wrap) -> Any:
    model = model_of(wrap, AddsAsItTrains())
    history = model.fit(X, Y, batch_size=6, epochs=2, validation_split=0.3, verbose=0)
    return results(model, history, X, Y)


@case
def several_steps_at_once(wrap: Wrap) -> Any:
    found = []
    for steps, repeated in ((2, False), (5, True), (3, False)):
        model = model_of(wrap, AddsAsItTrains(), steps_per_execution=steps)
        source = batches().repeat() if repeated else batches()
        options = {"steps_per_epoch": 5} if repeated else {}
        found.append(trained(model, model.fit(source, epochs=2, verbose=0, **options)))
    return found


class Annealed(keras.layers.Layer):
    """Adds nothing in the first epoch, and a sum from the second one on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.add_weight(initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.add_loss(self.weight * ops.sum(ops.square(x)))
        return x


@case
def a_sum_that_begins_later(wrap: Wrap) -> Any:
    layer = Annealed()
    model = model_of(wrap, layer)
    begins = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs=None: layer.weight.assign(0.01 * epoch))
    return trained(model, model.fit(batches(), epochs=3, callbacks=[begins], verbose=0))


def gathered(rows: Any) -> Any:
    """Those of all ranks."""
    tarantella = sys.modules.get("tarantella")
    return rows if tarantella is None else tarantella.gather_rows(rows)


class Balanced(keras.layers.Layer):
    """Routes each row to one of four experts; the load-balancing loss is that of the global batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = keras.layers.Dense(4, use_bias=False)

    def call(self, x: Any) -> Any:
        chances = ops.softmax(self.gate(x))
        chosen = ops.one_hot(ops.argmax(chances, -1), 4, dtype=chances.dtype)
        of_all = gathered([chances, chosen])
        self.add_loss(ops.sum(ops.mean(of_all[0], 0) * ops.mean(of_all[1], 0)))
        self.add_loss(0.01 * ops.sum(ops.square(of_all[0])))
        return chances * chosen


@case
def balanced_by_all_rows(wrap: Wrap) -> Any:
    model = model_of(wrap, Balanced(), Adds())
    return results(model, model.fit(batches(), epochs=2, verbose=0), X, Y)


class Centered(keras.layers.Layer):
    """Couples rows, those of the global batch."""

    def call(self, x: Any) -> Any:
        return x - ops.mean(gathered(x), axis=0)


@full
@case
def centered_by_all_rows(wrap: Wrap) -> Any:
    model = model_of(wrap, Centered())
    return trained(model, model.fit(batches(), epochs=2, verbose=0))


@full
@case
def two_inputs(wrap: Wrap) -> Any:
    inputs = {name: keras.Input((FEATURES,), name=name) for name in ("one", "other")}
    both = Adds()(keras.layers.Concatenate()(list(inputs.values())))
    model = wrap(keras.Model(inputs, {"out": keras.layers.Dense(2)(both)}))
    model.compile(keras.optimizers.SGD(0.02), {"out": "mse"})
    x = {"one": X, "other": X[::-1]}
    return trained(model, model.fit(x, {"out": Y}, batch_size=6, epochs=2, verbose=0))


class GathersAndAdds(keras.layers.Layer):
    """Computes on the rows of all ranks, and adds a sum over its own; a model around it adds one, too."""

    def call(self, x: Any) -> Any:
        x = x - ops.mean(gathered(x), axis=0)
        self.add_loss([0.01 * ops.sum(ops.square(x)), ops.var(gathered(x))])
        return x


class Around(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.dense = GathersAndAdds(), keras.layers.Dense(6)

    def call(self, x: Any) -> Any:
        self.add_loss(0.01 * ops.sum(ops.abs(x)))
        return self.dense(self.inner(x))


@case
def sums_beside_rows_of_all_ranks(wrap: Wrap) -> Any:
    model = model_of(wrap, Around())
    return [trained(model, model.fit(batches(), epochs=2, verbose=0)), model.evaluate(X, Y, batch_size=7, verbose=0)]


class RandomInTraining(keras.layers.Layer):
    """Draws nothing that counts, and adds losses in training alone."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.add_loss([0.01 * ops.sum(ops.square(x)), ops.mean(x)])
            x = x + 0.0 * keras.random.normal(ops.shape(x), seed=self.seeds, dtype=x.dtype)
        self.add_loss(0.1 * ops.mean(ops.abs(x)))
        return x


@case
def random_layers_that_add_in_training(wrap: Wrap) -> Any:
    model = model_of(wrap, RandomInTraining(), keras.layers.Dropout(0.0))
    return results(model, model.fit(batches(), epochs=2, verbose=0), X, Y)


class Changes(Adds):
    """Adds another loss each time that the model is compiled."""

    def call(self, x: Any) -> Any:
        self.add_loss(self.function(x))
        return x


@case
def compiled_anew(wrap: Wrap) -> Any:
    layer = Changes(lambda x: ops.mean(ops.square(x)))
    model = model_of(wrap, layer)
    found = [model.fit(batches(), verbose=0).history]
    for function in (lambda x: 0.01 * ops.sum(ops.square(x)), lambda x: ops.mean(ops.abs(x))):
        layer.function = function
        model.compile(keras.optimizers.SGD(0.02), "mse")
        found.append(model.fit(batches(), epochs=2, verbose=0).history)
    return [found, model.get_weights()]


@case
def single_rows_first(wrap: Wrap) -> Any:
    sizes = [1, 2, 8, 9]
    ends = np.cumsum(sizes)

    def source() -> Any:
        for first, end in zip(ends - sizes, ends, strict=True):
            yield X[first:end], Y[first:end]

    types = tuple(tf.TensorSpec((None, n), tf.float64) for n in (FEATURES, 2))
    rows = tf.data.Dataset.from_generator(source, output_signature=types)
    model = model_of(wrap, AddsAsItTrains())
    return trained(model, model.fit(rows, epochs=2, verbose=0))


class Keeps(keras.Model):
    """Leaves losses in a list, which its step takes out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.left = keras.layers.Dense(4, "tanh"), keras.layers.Dense(2), []

    def call(self, x: Any) -> Any:
        x = self.inner(x)
        self.left.append(ops.mean(ops.square(x)))
        self.latest = x
        return self.outer(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(x, training=True) - y)) + sum(self.left)
        self.left.clear()
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


@full
@case
def what_a_call_leaves_in_lists(wrap: Wrap) -> Any:
    keras.utils.set_random_seed(5)
    model = Keeps()
    model(X[:1])
    model.left.clear()
    model = wrap(model)
    model.compile(keras.optimizers.SGD(0.02))
    return trained(model, model.fit(batches(), epochs=2, verbose=0))


class ByNumPy(Adds):
    def call(self, x: Any) -> Any:
        scale = float(np.abs(np.asarray(x)).max() > 0)  # which a trace has not
        self.add_loss(scale * 0.01 * ops.sum(ops.square(x)))
        return x


class Eager(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.adds, self.outer = ByNumPy(), keras.layers.Dense(2)
        self.outer.build((None, FEATURES))
        self.built = True

    def call(self, x: Any) -> Any:
        return self.outer(self.adds(x))


@full
@case
def eager_layers_of_numpy(wrap: Wrap) -> Any:
    keras.utils.set_random_seed(5)
    model = wrap(Eager())
    model.compile(keras.optimizers.SGD(0.02), "mse", run_eagerly=True)
    return trained(model, model.fit(batches(9).take(4), epochs=2, verbose=0))
