"""A second call with the same objects, of which something has changed meanwhile: what was kept must not hide it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import CLASSES, FEATURES, Wrap, case, compiled, data, folder, full, mlp, trained


def twice(wrap: Wrap, change: Callable[[Any], None], batches: Any = None, model: Any = None) -> Any:
    """Two fits, with `change(model)` between them. `batches` are arrays in batches of 12 by default."""
    model = compiled(wrap(model or mlp()))
    x, y = data(36)
    arguments = {"x": x, "y": y, "batch_size": 12} if batches is None else {"x": batches}
    found = []
    for number in range(2):
        if number:
            change(model)
        history = model.fit(**arguments, epochs=2, verbose=0)
        found.append([trained(model, history), model.evaluate(**arguments, verbose=0)])
    return found


@full
@case
def learning_rate_set_between_fits(wrap: Wrap) -> Any:
    def change(model: Any) -> None:
        model.optimizer.learning_rate = 0.01

    return twice(wrap, change)


@full
@case
def optimizer_variables_set_between_fits(wrap: Wrap) -> Any:
    def change(model: Any) -> None:
        for variable in model.optimizer.variables[2:]:  # the momentum
            variable.assign(keras.ops.ones_like(variable))

    return twice(wrap, change)


@full
@case
def weights_set_between_fits(wrap: Wrap) -> Any:
    return twice(wrap, lambda model: model.set_weights([-0.5 * weight for weight in model.get_weights()]))


@full
@case
def last_weight_assigned_between_fits(wrap: Wrap) -> Any:
    return twice(wrap, lambda model: model.weights[-1].assign(keras.ops.ones_like(model.weights[-1])))


@full
@case
def weights_loaded_between_fits(wrap: Wrap) -> Any:
    file = folder("second_calls") / f"{os.getpid()}.weights.h5"  # each rank has one, with the same weights
    other = mlp()
    other.set_weights([weight + 0.25 for weight in other.get_weights()])
    other.save_weights(file)
    return twice(wrap, lambda model: model.load_weights(file))


def frozen(trainable: bool) -> Any:
    model = mlp()
    model.layers[0].trainable = trainable
    return model


@case
def layer_made_trainable_between_fits(wrap: Wrap) -> Any:
    """Without another compile, plain Keras goes on with the step that it has."""

    def change(model: Any) -> None:
        model.layers[0].trainable = True

    return twice(wrap, change, model=frozen(False))


@full
@case
def layer_frozen_between_fits(wrap: Wrap) -> Any:
    def change(model: Any) -> None:
        model.layers[0].trainable = False

    return twice(wrap, change, model=frozen(True))


@full
@case
def layer_made_trainable_and_compiled_between_fits(wrap: Wrap) -> Any:
    def change(model: Any) -> None:
        model.layers[0].trainable = True
        compiled(model)

    return twice(wrap, change, model=frozen(False))


@full
@case
def arrays_changed_in_place_between_fits(wrap: Wrap) -> Any:
    model = compiled(wrap(mlp()))
    x, y = data(36)
    found = []
    for _ in range(2):
        history = model.fit(x, y, batch_size=12, epochs=2, verbose=0)
        found.append([trained(model, history), model.predict(x, batch_size=12, verbose=0)])
        x *= -1
        y[:] = (y + 1) % CLASSES
    return found


@full
@case
def variable_in_a_map_changed_between_fits(wrap: Wrap) -> Any:
    scale = tf.Variable(1.0, dtype=tf.float64)
    batches = tf.data.Dataset.from_tensor_slices(data(36)).map(lambda x, y: (scale * x, y)).batch(8)
    return twice(wrap, lambda model: scale.assign(-2.0), batches)


@case
def variable_in_a_map_of_batches_changed_between_fits(wrap: Wrap) -> Any:
    scale = tf.Variable(1.0, dtype=tf.float64)
    batches = tf.data.Dataset.from_tensor_slices(data(36)).batch(8).map(lambda x, y: (scale * x, y))
    return twice(wrap, lambda model: scale.assign(-2.0), batches)


@case
def list_behind_a_generator_changed_between_fits(wrap: Wrap) -> Any:
    rows = list(zip(*data(36), strict=True))
    signature = tf.TensorSpec((FEATURES,), tf.float64), tf.TensorSpec((), tf.int64)
    batches = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=signature).batch(8)

    def change(model: Any) -> None:
        rows[:] = [(-2 * x, y) for x, y in rows[::-1]]

    return twice(wrap, change, batches)


@case
def file_rewritten_between_fits(wrap: Wrap) -> Any:
    file = folder("second_calls") / f"{os.getpid()}.bin"  # each rank has one, with the same rows
    x, y = data(36)

    def write(scale: float) -> None:
        file.write_bytes(np.concatenate([scale * x, y[:, None]], axis=1).tobytes())

    def parsed(record: Any) -> Any:
        values = tf.reshape(tf.io.decode_raw(record, tf.float64), (FEATURES + 1,))
        return values[:FEATURES], tf.cast(values[FEATURES], tf.int64)

    write(1.0)
    batches = tf.data.FixedLengthRecordDataset(str(file), 8 * (FEATURES + 1)).map(parsed).batch(8)
    return twice(wrap, lambda model: write(-2.0), batches)
