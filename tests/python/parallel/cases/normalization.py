"""BatchNormalization with synchronized=True is that of one process, its moving statistics included."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from common import CLASSES, FEATURES, SAMPLES, Wrap, case, compiled, data, extended, full, results, trained
from keras import ops


def net(*layers: Any, **options: Any) -> Any:
    first = keras.layers.BatchNormalization(synchronized=True, **options)
    second = keras.layers.BatchNormalization(synchronized=True, momentum=0.5, **options)
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            first,
            keras.layers.Dense(8, activation="tanh"),
            second,
            *layers,
            keras.layers.Dense(CLASSES),
        ]
    )


def fitted(wrap: Wrap, model: Any, batch_size: int = 9, **options: Any) -> Any:
    x, y = data()
    model = compiled(wrap(model), keras.optimizers.SGD(0.1, momentum=0.9), **options)
    return results(model, model.fit(x, y, batch_size=batch_size, epochs=2, verbose=0, validation_split=0.2), x, y)


@full
@case
def synchronized(wrap: Wrap) -> Any:
    return fitted(wrap, net())


@case
def synchronized_one_row_left(wrap: Wrap) -> Any:
    """A rank without rows must not count its copied row, but must move its statistics."""
    return fitted(wrap, net(), batch_size=6)


@case
def synchronized_eagerly(wrap: Wrap) -> Any:
    return fitted(wrap, net(), run_eagerly=True)


@full
@case
def synchronized_several_steps(wrap: Wrap) -> Any:
    return fitted(wrap, net(), steps_per_execution=2)


@full
@case
def synchronized_renormalized(wrap: Wrap) -> Any:
    return fitted(wrap, net(renorm=True) if "renorm" in dir(keras.layers.BatchNormalization()) else net())


@extended
@case
def synchronized_float32(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(net()), keras.optimizers.SGD(0.05))
    return trained(model, model.fit(x + 30, y, batch_size=9, epochs=1, verbose=0))


@full
@case
def synchronized_and_shared(wrap: Wrap) -> Any:
    """One layer on two inputs: its moments are reduced twice in a step."""
    a, b = keras.Input((FEATURES,), name="a"), keras.Input((FEATURES,), name="b")
    tower = net(keras.layers.Dense(CLASSES))
    model = compiled(wrap(keras.Model({"a": a, "b": b}, keras.layers.Add()([tower(a), tower(b)]))))
    x, y = data()
    inputs = {"a": x, "b": np.roll(x, 1, axis=1)}
    return results(model, model.fit(inputs, y, batch_size=9, epochs=2, verbose=0), inputs, y)


@full
@case
def synchronized_over_images(wrap: Wrap) -> Any:
    """Channels first, and one of them alone."""
    images = np.random.default_rng(2).normal(size=(SAMPLES, 2, 3, 3))
    layers = [
        keras.layers.BatchNormalization(axis=1, synchronized=True),
        keras.layers.Conv2D(1, 2),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.Flatten(),
        keras.layers.Dense(CLASSES),
    ]
    model = compiled(wrap(keras.Sequential([keras.Input(images.shape[1:]), *layers])))
    _, y = data()
    return results(model, model.fit(images, y, batch_size=9, epochs=2, verbose=0), images, y)


@case
def synchronized_and_masked(wrap: Wrap) -> Any:
    words = np.random.default_rng(3).integers(0, 4, (SAMPLES, 6))
    layers = [
        keras.layers.Embedding(4, 5, mask_zero=True),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.Dense(CLASSES),
    ]
    model = compiled(wrap(keras.Sequential([keras.Input((6,)), *layers])), keras.optimizers.SGD(0.1))
    tags = words % CLASSES
    return results(model, model.fit(words, tags, batch_size=9, epochs=2, verbose=0), words, tags)


@full
@case
def synchronized_then_frozen(wrap: Wrap) -> Any:
    x, y = data()
    model = net()
    model = compiled(wrap(model))
    model.fit(x, y, batch_size=8, verbose=0)
    model.layers[0].trainable = False
    compiled(model)
    model.fit(x, y, batch_size=8, verbose=0)
    model.layers[0].trainable = True
    compiled(model)
    return trained(model, model.fit(x, y, batch_size=8, verbose=0))


@full
@case
def synchronized_compiled_by_xla(wrap: Wrap) -> Any:
    return fitted(wrap, net(), jit_compile=True)


class RunningMean(keras.layers.Layer):
    """A user-defined layer that keeps statistics of the rows that it has seen."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=shape[1:], initializer="zeros", trainable=False, name="mean")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x, axis=0))
            return x
        return x - self.mean


@case
def running_mean_of_a_layer(wrap: Wrap) -> Any:
    """Means over equal shares: their mean is one process's."""
    x, y = data(36)
    layers = [keras.Input((FEATURES,)), RunningMean(), keras.layers.Dense(CLASSES)]
    model = compiled(wrap(keras.Sequential(layers)))
    return results(model, model.fit(x, y, batch_size=12, epochs=2, verbose=0, validation_data=data(10)), x, y)


@full
@case
def local_statistics_are_alike_however_they_are_read(wrap: Wrap) -> Any:
    """Each rank normalizes its own rows. One process does not, so four ways to train are compared with each other."""
    x, y = data(32)

    def trained_by(train: Any) -> Any:
        last = keras.layers.Dense(CLASSES, kernel_initializer=keras.initializers.RandomNormal(seed=1))
        layers = [keras.Input((FEATURES,)), keras.layers.BatchNormalization(), last]
        model = compiled(wrap(keras.Sequential(layers)))
        train(model)
        return [model.evaluate(x, y, batch_size=8, verbose=0), model.get_weights()]

    def fit(model: Any, *callbacks: Any) -> None:
        model.fit(x, y, batch_size=8, shuffle=False, callbacks=list(callbacks), verbose=0)

    def evaluated_amid(model: Any) -> None:
        evaluate = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: model.evaluate(x[:9], y[:9], batch_size=4, verbose=0)
        )
        fit(model, evaluate)

    def batch_by_batch(model: Any) -> None:
        for start in range(0, 32, 8):
            model.train_on_batch(x[start : start + 8], y[start : start + 8])

    def batch_by_batch_and_tested(model: Any) -> None:
        for start in range(0, 32, 8):
            model.train_on_batch(x[start : start + 8], y[start : start + 8])
            model.test_on_batch(x[:9], y[:9])

    first = np.concatenate([np.ravel(each) for each in keras.tree.flatten(trained_by(fit))])
    for train in (evaluated_amid, batch_by_batch, batch_by_batch_and_tested):
        other = np.concatenate([np.ravel(each) for each in keras.tree.flatten(trained_by(train))])
        np.testing.assert_allclose(other, first, rtol=1e-9, atol=1e-9, err_msg=train.__name__)
    return []
