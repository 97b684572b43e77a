"""Classes with a `fit`, an `evaluate` and so on of their own: they run as written, with the user's data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import FEATURES, Wrap, case, data, full, trained
from keras import ops

X = np.exp(data()[0])
Y = X[:, :2]


class Model(keras.Model):
    """Of a few layers."""

    def __init__(self) -> None:
        super().__init__()
        keras.utils.set_random_seed(3)
        self.hidden, self.outer = keras.layers.Dense(6, "tanh"), keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.outer(self.hidden(x))


def made(wrap: Wrap, model: Any, **options: Any) -> Any:
    model = wrap(model)
    model.compile(keras.optimizers.SGD(0.02), "mse", metrics=["mae"], **options)
    return model


def known(model: Any, history: Any) -> Any:
    return [trained(model, history), model.evaluate(X, Y, batch_size=7), model.predict(X, batch_size=7)]


class Prepares(Model):
    """Takes rows that its layers do not take; what it gets is an array or a dataset, never something of ours."""

    def prepared(self, x: Any, y: Any = None) -> Any:
        assert isinstance(x, (np.ndarray, tf.data.Dataset)), type(x)
        if isinstance(x, np.ndarray):
            return {"x": np.log(x)} if y is None else {"x": np.log(x), "y": y}
        return {"x": x.map(lambda x, y: (ops.log(x), y))}

    def fit(self, x: Any, y: Any = None, *, rounds: int = 1, validation_data: Any = None, **options: Any) -> Any:
        return super().fit(**self.prepared(x, y), epochs=rounds, validation_data=validation_data, verbose=0, **options)

    def evaluate(self, x: Any, y: Any = None, **options: Any) -> Any:
        options.pop("_use_cached_eval_dataset", None)
        return super().evaluate(**self.prepared(x, y), verbose=0, **{k: v for k, v in options.items() if k in KEPT})

    def predict(self, x: Any, **options: Any) -> Any:
        return -super().predict(**self.prepared(x), verbose=0, **options)

    def train_on_batch(self, x: Any, y: Any) -> Any:
        return super().train_on_batch(**self.prepared(x, y))

    def test_on_batch(self, x: Any, y: Any) -> Any:
        return super().test_on_batch(**self.prepared(x, y), return_dict=True)

    def predict_on_batch(self, x: Any) -> Any:
        return super().predict_on_batch(**self.prepared(x)) + 1


KEPT = ("batch_size", "return_dict", "callbacks", "steps", "sample_weight")


@case
def prepares_its_data(wrap: Wrap) -> Any:
    model = made(wrap, Prepares())
    history = model.fit(X, Y, rounds=2, batch_size=6, validation_data=(X[:10], Y[:10]))
    return known(model, history)


@full
@case
def prepares_datasets(wrap: Wrap) -> Any:
    model = made(wrap, Prepares())
    rows = tf.data.Dataset.from_tensor_slices((X, Y))
    history = model.fit(rows.shuffle(40, seed=1).batch(6), rounds=3, validation_data=rows.batch(9))
    return known(model, history)


@case
def prepares_batches(wrap: Wrap) -> Any:
    model = made(wrap, Prepares())
    found = [model.train_on_batch(X[i : i + 7], Y[i : i + 7]) for i in range(0, 30, 7)]
    return [found, model.test_on_batch(X[:9], Y[:9]), model.predict_on_batch(X[:9]), model.get_weights()]


class UsesWhatFitKeeps(Model):
    """As the tasks of keras-hub: the data of a fit are prepared once, evaluations in it use what Keras has kept."""

    def fit(self, x: Any, y: Any, validation_data: Any, **options: Any) -> Any:
        kept = (np.log(validation_data[0]), validation_data[1])
        return super().fit(np.log(x), y, validation_data=kept, verbose=0, **options)

    def evaluate(self, x: Any = None, y: Any = None, **options: Any) -> Any:
        if options.get("_use_cached_eval_dataset"):
            assert isinstance(x, np.ndarray)
            return super().evaluate(x, y, **options)
        return super().evaluate(np.log(x), y, verbose=0, **options)


@case
def uses_what_fit_keeps(wrap: Wrap) -> Any:
    model = made(wrap, UsesWhatFitKeeps())
    history = model.fit(X, Y, batch_size=6, epochs=3, validation_data=(X[5:20], Y[5:20]), validation_batch_size=4)
    return [trained(model, history), model.evaluate(X, Y, batch_size=7)]


class Thrice(Model):
    """Warms up, trains, and trains the last layer alone; evaluates in between."""

    def fit(self, x: Any, y: Any, **options: Any) -> Any:
        first = super().fit(x[:16], y[:16], **options)
        self.optimizer.learning_rate = 0.01
        second = super().fit(x, y, validation_split=0.25, **options)
        between = self.evaluate(x, y, verbose=0)
        self.hidden.trainable = False
        self.compile(keras.optimizers.SGD(0.01), "mse")
        third = super().fit(x, y, **options)
        return [each.history for each in (first, second, third)], between, self.predict(x[:5], verbose=0)


@case
def fits_three_times(wrap: Wrap) -> Any:
    model = made(wrap, Thrice())
    return [model.fit(X, Y, batch_size=6, epochs=2, verbose=0), model.get_weights()]


class WithAnother(Model):
    """Trains another model inside, and a part of itself, each on all data."""

    def fit(self, x: Any, y: Any, **options: Any) -> Any:
        keras.utils.set_random_seed(11)
        other = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(2)])
        other.compile(keras.optimizers.SGD(0.01), "mse")
        found = [other.fit(x, y, epochs=2, batch_size=9, verbose=0).history, other.evaluate(x, y, verbose=0)]
        part = keras.Sequential([keras.Input((FEATURES,)), self.hidden, keras.layers.Dense(2)])
        part.compile(keras.optimizers.SGD(0.01), "mse")
        found += [part.fit(x, y, epochs=1, verbose=0).history, other.get_weights()]
        return super().fit(x, y + other.predict(x, verbose=0), **options), found


@case
def fits_another_model_inside(wrap: Wrap) -> Any:
    model = made(wrap, WithAnother())
    history, found = model.fit(X, Y, batch_size=6, epochs=2, verbose=0)
    return [trained(model, history), found, model.evaluate(X, Y, verbose=0)]


class Alone(keras.callbacks.Callback):
    """Calls the model that is trained, and another one, in the midst of training: this rank for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.other = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(2)])
        self.other.compile(keras.optimizers.SGD(0.01), "mse")
        self.found: list[Any] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.found += [self.model.evaluate(X[:7], Y[:7], verbose=0), self.model.predict(X[:3], verbose=0)]
        self.found.append(self.other.fit(X, Y, batch_size=8, verbose=0).history)


@case
def calls_in_a_callback(wrap: Wrap) -> Any:
    keras.utils.set_random_seed(5)
    model, callback = made(wrap, Model()), Alone()
    history = model.fit(X, Y, batch_size=6, epochs=2, callbacks=[callback], validation_split=0.2, verbose=0)
    return [trained(model, history), callback.found]


class OwnSteps(Model):
    """Steps with trackers of their own, those of evaluation with another log; an evaluate that passes all on."""

    def __init__(self) -> None:
        super().__init__()
        self.trained, self.tested = keras.metrics.Mean(name="trained"), keras.metrics.Mean(name="tested")

    @property
    def metrics(self) -> list[Any]:
        return [self.trained, self.tested]

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(x, training=True) - y))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.trained.update_state(loss)
        return {"trained": self.trained.result()}

    def test_step(self, batch: Any) -> Any:
        x, y = batch
        errors = ops.abs(self(x, training=False) - y)
        self.tested.update_state(ops.mean(errors, axis=1))
        return {"tested": self.tested.result(), "twice": 2 * self.tested.result()}

    def evaluate(self, *args: Any, **options: Any) -> Any:
        return super().evaluate(*args, **options)


@case
def own_steps_and_evaluate(wrap: Wrap) -> Any:
    model = wrap(OwnSteps())
    model.compile(keras.optimizers.SGD(0.02))
    history = model.fit(X, Y, batch_size=9, epochs=2, validation_data=(X[:18], Y[:18]), verbose=0)
    return trained(model, history)


class UsesSizes(Model):
    """An evaluate that uses what Keras passes of a fit."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[Any] = []

    def evaluate(self, x: Any, y: Any, batch_size: int, steps: Any = None, **options: Any) -> Any:
        self.sizes.append([batch_size, steps or 0])
        options.pop("_use_cached_eval_dataset", None)
        return super().evaluate(x, y, batch_size=batch_size, steps=steps, **options)


@case
def evaluates_as_many_rows_as_it_trains(wrap: Wrap) -> Any:
    model, found = made(wrap, UsesSizes()), []
    for options in ({"validation_steps": 2}, {"validation_batch_size": 5}, {}):
        options |= {"validation_data": (X[:20], Y[:20]), "verbose": 0}
        found.append(model.fit(X, Y, batch_size=6, epochs=2, **options).history)
    return [found, list(model.sizes)]


class OnBatches(Model):
    def fit(self, x: Any, y: Any) -> Any:
        return [self.train_on_batch(x[i : i + 8], y[i : i + 8]) for i in range(0, len(x), 8)]


class BatchesAlone(keras.callbacks.Callback):
    """Calls the methods for single batches of the model that is trained: this rank for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.found.append(self.model.test_on_batch(X[:7], Y[:7]))


class Twice(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return 2 * x


@case
def single_batches(wrap: Wrap) -> Any:
    model = made(wrap, OnBatches())
    found = [model.fit(X, Y), model.get_weights()]
    keras.utils.set_random_seed(9)
    model = made(wrap, keras.Sequential([keras.Input((FEATURES,)), Twice(), keras.layers.Dense(2)]))
    callback = BatchesAlone()
    return [*found, trained(model, model.fit(X, Y, batch_size=6, callbacks=[callback], verbose=0)), callback.found]
