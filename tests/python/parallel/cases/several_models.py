"""Several models and optimizers in one process, and copies of models that have been trained."""

from __future__ import annotations

import copy
import os
import pickle
import tempfile
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import FEATURES, Wrap, case, compiled, data, extended, full, is_master, mlp, trained

NOISE = 2


class Critic(keras.Model):
    """Learns to tell rows from what `maker` makes of noise; the batch has both."""

    def __init__(self, maker: Any, judge: Any) -> None:
        super().__init__()
        self.maker, self.judge = maker, judge

    def call(self, batch: Any) -> Any:
        return self.judge(batch[0])

    def train_step(self, batch: Any) -> Any:
        (rows, noise), *_ = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.judge(self.maker(noise)) - self.judge(rows) + 0.1 * self.judge(rows) ** 2)
        variables = self.judge.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return self.get_metrics_result()


class Forger(Critic):
    """Learns to pass the judge."""

    def train_step(self, batch: Any) -> Any:
        (_, noise), *_ = batch
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self.judge(self.maker(noise)))
        variables = self.maker.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return self.get_metrics_result()


def nets() -> tuple[Any, Any]:
    maker = keras.Sequential([keras.Input((NOISE,)), keras.layers.Dense(FEATURES, activation="tanh")])
    judge = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
    return maker, judge


def noise(samples: int) -> Any:
    return np.random.default_rng(samples + 1).normal(size=(samples, NOISE))


def adversarial(wrap: Wrap, **options: Any) -> Any:
    maker, judge = nets()
    critic, forger = wrap(Critic(maker, judge)), wrap(Forger(maker, judge))
    critic.compile(keras.optimizers.Adam(0.01), **options)
    forger.compile(keras.optimizers.RMSprop(0.01), **options)
    x, _ = data(21)
    for _ in range(3):
        critic.fit((x, noise(21)), batch_size=8, verbose=0)
        forger.fit((x, noise(21)), batch_size=5, verbose=0)
    return {"maker": maker.get_weights(), "judge": judge.get_weights()}


@case
def adversaries_trained_in_turn(wrap: Wrap) -> Any:
    return adversarial(wrap)


@full
@case
def adversaries_trained_in_turn_compiled_by_xla(wrap: Wrap) -> Any:
    return adversarial(wrap, jit_compile=True)


@extended
@case
def adversaries_trained_in_turn_eagerly(wrap: Wrap) -> Any:
    return adversarial(wrap, run_eagerly=True)


@case
def a_combined_model_and_its_part(wrap: Wrap) -> Any:
    """The judge alone, then maker and frozen judge as one model, in turn."""
    maker, judge = nets()
    alone = wrap(judge)
    alone.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
    fixed = keras.models.clone_model(judge)
    fixed.trainable = False
    both = wrap(keras.Sequential([keras.Input((NOISE,)), maker, fixed]))
    both.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
    x, y = data(21)
    for _ in range(2):
        alone.fit(x, (y > 0).astype("float64"), batch_size=8, verbose=0)
        fixed.set_weights(judge.get_weights())
        both.fit(noise(21), np.ones(21), batch_size=8, verbose=0)
    return {"maker": maker.get_weights(), "judge": judge.get_weights()}


@case
def one_optimizer_for_two_models(wrap: Wrap) -> Any:
    """Over a shared layer and a layer of their own."""
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(4, activation="tanh")(inputs)
    inner = [keras.Model(inputs, keras.layers.Dense(units)(hidden)) for units in (1, 2)]
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(list({id(v): v for model in inner for v in model.trainable_variables}.values()))
    first, second = (wrap(model) for model in inner)
    first.compile(optimizer, "mse")
    second.compile(optimizer, "mse")
    x, _ = data(21)
    for _ in range(2):
        first.fit(x, x[:, :1], batch_size=8, verbose=0)
        second.fit(x, x[:, :2], batch_size=8, verbose=0)
    return [*first.get_weights(), *second.get_weights(), *(np.asarray(v) for v in optimizer.variables)]


def and_on(model: Any) -> Any:
    x, y = data()
    return trained(model, model.fit(x, y, batch_size=7, verbose=0))


def original(wrap: Wrap) -> Any:
    model = compiled(wrap(mlp()), keras.optimizers.Adam(0.01))
    and_on(model)
    return model


@case
def a_deep_copy_trains_on(wrap: Wrap) -> Any:
    model = original(wrap)
    twin = copy.deepcopy(model)
    assert type(twin) is type(model)
    return {"copy": and_on(twin), "original": and_on(model), "copy again": and_on(twin)}


@full
@case
def a_pickle_trains_on(wrap: Wrap) -> Any:
    model = original(wrap)
    twin = pickle.loads(pickle.dumps(model))
    assert type(twin) is type(model)
    return {"copy": and_on(twin), "original": and_on(model)}


@full
@case
def a_clone_trains_from_the_start(wrap: Wrap) -> Any:
    model = original(wrap)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    clone = compiled(wrap(clone), keras.optimizers.Adam(0.02))
    return {"clone": and_on(clone), "original": and_on(model)}


@full
@case
def a_saved_and_loaded_model_trains_on(wrap: Wrap) -> Any:
    model = original(wrap)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        getattr(model, "keras_model", model).save(path)
        loaded = wrap(keras.models.load_model(path))
    return {"loaded": and_on(loaded), "original": and_on(model)}


@full
@case
def another_trained_by_a_callback_of_the_master_alone(wrap: Wrap) -> Any:
    """It was trained on all ranks before, and is so again."""
    x, y = data()
    model, other = compiled(wrap(mlp())), original(wrap)
    alone = getattr(other, "keras_model", other)

    def train(batch: int, logs: Any) -> None:
        if is_master() and batch == 2:
            alone.fit(x, y, batch_size=7, verbose=0)

    between = keras.callbacks.LambdaCallback(on_train_batch_end=train)
    history = model.fit(x, y, batch_size=7, epochs=2, verbose=0, callbacks=[between])
    return {"model": trained(model, history), "other": and_on(other)}


@full
@case
def made_and_compiled_many_times(wrap: Wrap) -> Any:
    x, y = data(16)
    found = []
    for _ in range(3):
        model = wrap(mlp())
        for rate in (0.1, 0.2):
            compiled(model, keras.optimizers.SGD(rate))
            found.append(trained(model, model.fit(x, y, batch_size=8, verbose=0)))
    return found
