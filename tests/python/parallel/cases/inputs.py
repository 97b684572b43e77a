"""Every kind of input that Keras accepts, with its options."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import (
    CLASSES,
    FEATURES,
    Wrap,
    case,
    compiled,
    data,
    extended,
    full,
    is_master,
    mlp,
    on_ranks,
    pipeline,
    trained,
)


def batches(samples: int = 37, batch: int = 8, weights: bool = False) -> Any:
    """Global batches, one after the other, the last one short."""
    x, y = data(samples)
    parts = (x, y, np.linspace(0, 2, samples)) if weights else (x, y)
    for start in range(0, samples, batch):
        yield tuple(part[start : start + batch] for part in parts)


def fitted(wrap: Wrap, x: Any, **fit: Any) -> Any:
    model = compiled(wrap(mlp()))
    return model, trained(model, model.fit(x, verbose=0, **fit))


class Batches(keras.utils.PyDataset):
    """As in Keras's guide: it shuffles itself after every epoch; without end it would do so amid what is read ahead."""

    def __init__(self, samples: int = 37, batch: int = 8, length: Any = True, **options: Any) -> None:
        super().__init__(**options)
        self.x, self.y = data(samples)
        self.batch, self.begun, self.ended = batch, 0, 0
        self.length = -(-samples // batch) if length else None
        self.order = np.arange(samples)

    @property
    def num_batches(self) -> Any:
        return self.length

    def __getitem__(self, index: int) -> Any:
        rows = self.order[index % 5 * self.batch :][: self.batch]
        return self.x[rows], self.y[rows]

    def on_epoch_begin(self) -> None:
        self.begun += 1

    def on_epoch_end(self) -> None:
        self.ended += 1
        if self.length:
            np.random.default_rng(self.ended).shuffle(self.order)


@case
def generator(wrap: Wrap) -> Any:
    """The length of the first epoch is unknown beforehand."""
    return fitted(wrap, batches())[1]


@case
def generator_that_ends_late(wrap: Wrap) -> Any:
    """Nothing of a step may run before its batch is there, such as an optimizer's count of steps."""

    def late() -> Any:
        yield from batches()
        time.sleep(0.5)

    return fitted(wrap, late())[1]


@case
def generator_with_weights_and_validation(wrap: Wrap) -> Any:
    train = (batch for _ in range(3) for batch in batches(weights=True))
    return fitted(wrap, train, epochs=3, steps_per_epoch=5, validation_data=batches(11, 4), validation_freq=3)[1]


@case
def generator_to_evaluate_and_predict(wrap: Wrap) -> Any:
    model = compiled(wrap(mlp()))
    return [
        model.evaluate(batches(), verbose=0, return_dict=True),
        model.predict(((x,) for x, _ in batches(10, 3)), verbose=0),
        model.predict(((x,) for x, _ in batches(20, 3)), verbose=0, steps=2),
    ]


@case
def generator_of_structures(wrap: Wrap) -> Any:
    a, b = keras.Input((FEATURES,), name="a"), keras.Input((2,), name="b")
    hidden = keras.layers.Concatenate()([a, b])
    model = wrap(keras.Model({"a": a, "b": b}, {"c": keras.layers.Dense(CLASSES, name="c")(hidden)}))
    model.compile("adam", {"c": keras.losses.SparseCategoricalCrossentropy(from_logits=True)})
    train = (({"a": x, "b": x[:, :2]}, {"c": y}) for x, y in batches(37, 9))
    return trained(model, model.fit(train, verbose=0))


@extended
@case
def py_dataset(wrap: Wrap) -> Any:
    source, check = Batches(), Batches(11, 4)
    model, result = fitted(wrap, source, epochs=3, shuffle=False, validation_data=check)
    counts = [source.begun, source.ended, check.begun, check.ended]
    evaluated = model.evaluate(check, verbose=0)
    return [result, counts, evaluated, model.predict(Batches(10, 3), verbose=0)]


@case
def py_dataset_shuffled_and_weighted(wrap: Wrap) -> Any:
    return fitted(wrap, Batches(), epochs=2, class_weight={0: 0.5, 1: 2.0, 2: 1.0})[1]


@case
def py_dataset_with_threads(wrap: Wrap) -> Any:
    return fitted(wrap, Batches(workers=2, max_queue_size=3), epochs=2)[1]


@case
def py_dataset_with_processes(wrap: Wrap) -> Any:
    return fitted(wrap, Batches(workers=2, use_multiprocessing=True), epochs=2, shuffle=False)[1]


@case
def py_dataset_without_end(wrap: Wrap) -> Any:
    return fitted(wrap, Batches(length=None), epochs=2, steps_per_epoch=4)[1]


@full
@case
def pandas_frames(wrap: Wrap) -> Any:
    import pandas

    x, y = data()
    frame, labels = pandas.DataFrame(x, columns=list("abcde")), pandas.Series(y)
    model = compiled(wrap(mlp()))
    history = model.fit(frame, labels, batch_size=8, epochs=2, validation_split=0.2, verbose=0)
    return [trained(model, history), model.evaluate(frame, labels, verbose=0), model.predict(frame, verbose=0)]


@full
@case
def tensors_in_lists(wrap: Wrap) -> Any:
    a, b = keras.Input((FEATURES,)), keras.Input((FEATURES,))
    model = wrap(keras.Model([a, b], keras.layers.Dense(CLASSES)(keras.layers.Add()([a, b]))))
    x, y = data()
    inputs = [tf.constant(x), tf.constant(x * 2)]
    model = compiled(model)
    return trained(model, model.fit(inputs, tf.constant(y), batch_size=8, epochs=2, verbose=0))


@full
@case
def validation_of_another_kind(wrap: Wrap) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()))
    first = model.fit(x, y, batch_size=9, epochs=2, validation_data=pipeline(4, 10), validation_freq=[2], verbose=0)
    second = model.fit(pipeline(8), validation_data=data(11), validation_batch_size=4, validation_steps=2, verbose=0)
    third = model.fit(x, y, batch_size=5, initial_epoch=1, epochs=3, validation_data=Batches(11, 4), verbose=0)
    return [trained(model, first), dict(second.history), dict(third.history)]


@case
def repeated_with_steps(wrap: Wrap) -> Any:
    return fitted(wrap, pipeline(8).repeat(), epochs=3, steps_per_epoch=4)[1]


@case
def repeated_before_batches(wrap: Wrap) -> Any:
    source = tf.data.Dataset.from_tensor_slices(data()).repeat(2).batch(8)
    return fitted(wrap, source, epochs=2)[1]


@full
@case
def length_unknown(wrap: Wrap) -> Any:
    source = tf.data.Dataset.from_tensor_slices(data()).filter(lambda x, y: x[0] > -1).batch(8)
    model, result = fitted(wrap, source, epochs=3)
    return [result, model.evaluate(source, verbose=0), model.predict(source, verbose=0)]


@case
def ends_within_the_steps(wrap: Wrap) -> Any:
    return fitted(wrap, pipeline(8).repeat(2), epochs=4, steps_per_epoch=4)[1]


@case
def several_steps_per_execution_and_a_generator(wrap: Wrap) -> Any:
    model = compiled(wrap(mlp()), steps_per_execution=3)
    return trained(model, model.fit((b for _ in range(2) for b in batches()), epochs=2, steps_per_epoch=5, verbose=0))


@case
def padded_batches_in_dicts(wrap: Wrap) -> Any:
    """Sequences of many lengths: the global batch says how far a row is padded."""
    random = np.random.default_rng(3)
    words = [random.integers(1, 9, random.integers(1, 7)) for _ in range(29)]

    def source() -> Any:
        for row in words:
            yield {"words": row, "more": np.float64([len(row)])}, len(row) % CLASSES

    spec = ({"words": tf.TensorSpec([None], tf.int64), "more": tf.TensorSpec([1], tf.float64)}, tf.TensorSpec([]))
    rows = tf.data.Dataset.from_generator(source, output_signature=spec).padded_batch(6)
    a, b = keras.Input((None,), name="words"), keras.Input((1,), name="more")
    hidden = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(9, 4)(a))
    hidden = keras.layers.Concatenate()([hidden, b])
    model = compiled(wrap(keras.Model({"words": a, "more": b}, keras.layers.Dense(CLASSES)(hidden))))
    return trained(model, model.fit(rows, epochs=2, verbose=0))


@case
def mapped_by_rows(wrap: Wrap) -> Any:
    """Each rank maps its own rows only; the last batch has one row."""

    def scaled(x: Any, y: Any) -> Any:
        return {"x": x / (1 + tf.reduce_max(tf.abs(x)))}, y

    rows = tf.data.Dataset.from_tensor_slices(data()).shuffle(37, seed=3).map(scaled, num_parallel_calls=2)
    inputs = keras.Input((FEATURES,), name="x")
    model = compiled(wrap(keras.Model({"x": inputs}, keras.layers.Dense(CLASSES)(inputs))))
    history = model.fit(rows.batch(6).prefetch(1), epochs=2, verbose=0)
    check = tf.data.Dataset.from_tensor_slices(data(10)).map(scaled).batch(3)
    return [trained(model, history), model.evaluate(check, verbose=0), model.predict(check, verbose=0)]


@case
def batches_mapped_as_a_whole(wrap: Wrap) -> Any:
    """A map that depends on the global batch must see all of it."""
    source = pipeline(8).map(lambda x, y: (x - tf.reduce_mean(x, axis=0), y)).cache().repeat(2)
    return fitted(wrap, source, epochs=2)[1]


@case
def inputs_in_another_order(wrap: Wrap) -> Any:
    """The sorted keys have another order than the model's inputs, and a batch of one looks like a row of the other."""
    source, prefix = keras.Input((6, 4), name="source"), keras.Input((None,), name="prefix", dtype="int32")
    words = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(5, 4)(prefix))
    hidden = keras.layers.Add()([keras.layers.GlobalAveragePooling1D()(source), words])
    model = compiled(wrap(keras.Model([source, prefix], keras.layers.Dense(CLASSES)(hidden))))
    random = np.random.default_rng(0)
    x = {"source": random.normal(size=(20, 6, 4)), "prefix": random.integers(0, 5, (20, 4))}
    rows = tf.data.Dataset.from_tensor_slices((x, random.integers(0, CLASSES, 20)))
    return trained(model, model.fit(rows.batch(6), verbose=0))


@case
def optional_input_that_is_none(wrap: Wrap) -> Any:
    class Both(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def call(self, a: Any, b: Any = None) -> Any:
            return self.dense(a) if b is None else self.dense(a) + b

    a, b = keras.Input((FEATURES,), name="a"), keras.Input((4,), name="b", optional=True)
    model = compiled(wrap(keras.Model({"a": a, "b": b}, keras.layers.Dense(CLASSES)(Both()(a, b)))))
    x, y = data()
    inputs = {"a": x, "b": None}
    history = model.fit(inputs, y, batch_size=6, verbose=0)
    return [trained(model, history), model.evaluate(inputs, y, verbose=0), model.predict(inputs, verbose=0)]


@case
def one_number_for_a_batch(wrap: Wrap) -> Any:
    class Tempered(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(CLASSES)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, batch: Any) -> Any:
            x, y, temperature = batch
            with tf.GradientTape() as tape:
                logits = self(x) / temperature
                loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

    batches = pipeline(6).map(lambda x, y: (x, y, 1 + tf.reduce_max(tf.abs(x))))
    model = wrap(Tempered())
    model.compile("sgd")
    model.fit(batches, epochs=2, verbose=0)
    return model.get_weights()


@case
def random_numbers_in_a_parallel_map(wrap: Wrap) -> Any:
    """On ranks they go to the elements in their order, as where nothing is parallel."""
    calls = tf.data.AUTOTUNE if on_ranks() else None
    rows = tf.data.Dataset.from_tensor_slices(data()).map(
        lambda x, y: (x + tf.random.normal([], dtype=x.dtype), y), calls
    )
    return fitted(wrap, rows.batch(8), epochs=2)[1]


@case
def torch_loaders(wrap: Wrap) -> Any:
    """They shuffle with torch's generator: all ranks start from the master's state."""
    try:
        import torch
    except ImportError:
        return None
    x, y = map(torch.from_numpy, data())
    rows = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader
    torch.manual_seed(5 if is_master() else 6)
    check = loader(rows, batch_size=5, generator=torch.Generator())
    model, result = fitted(wrap, loader(rows, batch_size=8, shuffle=True), epochs=3, validation_data=check)
    return [
        result,
        model.evaluate(loader(rows, batch_size=10, drop_last=True), verbose=0),
        model.predict(loader(torch.utils.data.TensorDataset(x), batch_size=9, num_workers=2), verbose=0),
    ]
