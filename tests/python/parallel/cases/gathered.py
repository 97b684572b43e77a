"""Rows of all ranks in a user's step, by `tnt.gather_rows`: what looks across rows of the global batch."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import FEATURES, SAMPLES, Wrap, case, data, trained
from keras import ops

X = data()[0] * np.linspace(0.5, 2, SAMPLES)[:, None]
LABELS = np.arange(SAMPLES) % 3


def gathered(structure: Any) -> Any:
    tarantella = sys.modules.get("tarantella")
    return structure if tarantella is None else tarantella.gather_rows(structure)


def encoder() -> Any:
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(3)])


class Contrastive(keras.Model):
    """SimCLR: two views of each row, which must be nearer than those of other rows; the temperature is trained, too."""

    tnt_reduction = "mean"

    def __init__(self) -> None:
        super().__init__()
        self.encoder = encoder()
        self.heat = self.add_weight(initializer="ones", name="heat")

    def call(self, x: Any) -> Any:
        return self.encoder(x)

    def losses_of(self, one: Any, other: Any) -> Any:
        """A value for each row of the global batch."""
        one, other = (tf.math.l2_normalize(each, -1) for each in gathered((one, other)))
        logits = one @ tf.transpose(other) * self.heat
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(logits)[0]), logits)

    def loss_of(self, losses: Any) -> Any:
        return ops.mean(losses)

    def step(self, data: Any, variables: Any) -> tuple[Any, Any]:
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            target = self.loss_of(self.losses_of(self(x, training=True), self(x * 0.9 + 0.1, training=True)))
        return ops.mean(target), tape.gradient(target, variables)

    def train_step(self, data: Any) -> Any:
        loss, found = self.step(data, self.trainable_variables)
        found, norm = tf.clip_by_global_norm(found, 0.5)
        self.optimizer.apply_gradients(zip(found, self.trainable_variables, strict=True))
        return {"loss": loss, "norm": norm}

    def test_step(self, data: Any) -> Any:
        return {"loss": self.loss_of(self.losses_of(self(data), self(data * 0.9 + 0.1)))}


class AlongRows(Contrastive):
    """Gives the tape the losses of all rows, which it sums."""

    def loss_of(self, losses: Any) -> Any:
        return losses * 0.1


class Centered(Contrastive):
    """Labels, and what is one number for each row of this rank, less what all rows have in common."""

    def step(self, data: Any, variables: Any) -> tuple[Any, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            rows = gathered({"out": out, "y": y})
            centers = tf.math.unsorted_segment_mean(rows["out"], rows["y"], 3)
            losses = ops.sum((out - tf.gather(centers, y)) ** 2, -1) - 0.1 * ops.sum(ops.var(rows["out"], axis=0))
            target = ops.mean(losses) + 0.01 * ops.sum(self.heat**2)
        return target, tape.gradient(target, variables)


def fitted(wrap: Wrap, kind: Any, samples: int, batch: int, labels: bool = False, **options: Any) -> Any:
    model = wrap(kind())
    model.compile(keras.optimizers.Adam(0.01), **options)
    rows = (X[:samples], LABELS[:samples]) if labels else (X[:samples],)
    history = model.fit(*rows, batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return [trained(model, history), model.optimizer.iterations.numpy()]


@case
def contrastive(wrap: Wrap) -> Any:
    return [fitted(wrap, Contrastive, *sizes) for sizes in ((SAMPLES, 16), (7, 3))]


@case
def contrastive_eagerly(wrap: Wrap) -> Any:
    return fitted(wrap, Contrastive, 7, 3, run_eagerly=True)


@case
def contrastive_in_several_steps_per_execution(wrap: Wrap) -> Any:
    return fitted(wrap, Contrastive, SAMPLES, 8, steps_per_execution=2)


@case
def losses_of_all_rows(wrap: Wrap) -> Any:
    return fitted(wrap, AlongRows, SAMPLES, 16)


@case
def evaluated(wrap: Wrap) -> Any:
    model = wrap(Contrastive())
    model.compile("sgd")
    return model.evaluate(X[:9], batch_size=9, verbose=0, return_dict=True)


@case
def centers_of_classes(wrap: Wrap) -> Any:
    return [fitted(wrap, Centered, *sizes, labels=True) for sizes in ((SAMPLES, 16), (7, 3))]


@case
def penalty_on_gradients_through_all_rows(wrap: Wrap) -> Any:
    class Penalized(Contrastive):
        def step(self, data: Any, variables: Any) -> tuple[Any, Any]:
            x = data[0] if isinstance(data, tuple) else data
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    loss = ops.mean(self.losses_of(self(x), self(x * 0.9 + 0.1)))
                slopes = inner.gradient(loss, variables)
                total = loss + 0.1 * tf.add_n([tf.reduce_sum(each**2) for each in slopes])
            return total, outer.gradient(total, variables)

    return fitted(wrap, Penalized, SAMPLES, 16)


class Views(Contrastive):
    """Parts of several numbers of rows, and one that is missing."""

    def step(self, data: Any, variables: Any) -> tuple[Any, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            both, labels, _ = gathered((ops.concatenate([out, out * 1.5], 0), y, None))
            loss = ops.std(both) + ops.mean(both[:, :1]) * ops.mean(ops.cast(labels, both.dtype))
        return loss, tape.gradient(loss, variables)


@case
def parts_of_several_numbers_of_rows(wrap: Wrap) -> Any:
    return [fitted(wrap, Views, *sizes, labels=True) for sizes in ((SAMPLES, 16), (7, 3))]


class Masked(keras.Model):
    """Sequences with masked steps, more of them in later rows; the loss of Keras takes the mask from its argument."""

    tnt_reduction = "mean"

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([keras.layers.Masking(), keras.layers.GRU(3, return_sequences=True)])

    def call(self, x: Any) -> Any:
        return self.inner(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            labels, predicted = gathered((y, self(x, training=True)))
            loss = keras.losses.MeanSquaredError()(labels, predicted)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@case
def masks_of_all_rows(wrap: Wrap) -> Any:
    x = np.random.default_rng(3).normal(size=(10, 5, FEATURES))
    for row in range(10):
        x[row, : row // 2] = 0.0
    model = wrap(Masked())
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(x, x[..., :3] ** 2, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return trained(model, history)
