"""Sparse gradients: the result of one process, whatever the optimizer does with repeated rows."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import CLASSES, SAMPLES, Wrap, case, compiled, extended, full, results, trained
from keras import ops

WORDS, LENGTH = 11, 4


def sentences(samples: int = 37) -> tuple[Any, Any]:
    """Few words, so that rows repeat within a sentence, a batch and over ranks."""
    random = np.random.default_rng(samples)
    return random.integers(0, WORDS, (samples, LENGTH)), random.integers(0, CLASSES, samples)


def net() -> Any:
    """Two embeddings, the one used twice, and a dense layer."""
    words = keras.Input((LENGTH,), dtype="int32")
    shared = keras.layers.Embedding(WORDS, 3)
    other = keras.layers.Embedding(WORDS, 2)
    parts = [shared(words), shared(words[:, ::-1]), other(words)]
    flat = keras.layers.Flatten()(keras.layers.Concatenate()(parts))
    return keras.Model(words, keras.layers.Dense(CLASSES)(flat))


def embedded(wrap: Wrap, optimizer: Any, batch_size: int = 8, **options: Any) -> Any:
    x, y = sentences()
    model = compiled(wrap(net()), optimizer, **options)
    return trained(model, model.fit(x, y, batch_size=batch_size, epochs=2, verbose=0))


@case
def embedding_adam(wrap: Wrap) -> Any:
    return embedded(wrap, keras.optimizers.Adam(0.01))


@full
@case
def embedding_adam_clipped(wrap: Wrap) -> Any:
    return embedded(wrap, keras.optimizers.Adam(0.01, clipnorm=0.01))


@extended
@case
def embedding_momentum(wrap: Wrap) -> Any:
    return embedded(wrap, keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), batch_size=7)


@extended
@case
def embedding_adagrad_clipped(wrap: Wrap) -> Any:
    return embedded(wrap, keras.optimizers.Adagrad(0.1, clipnorm=0.05))


@full
@case
def embedding_adadelta_globally_clipped(wrap: Wrap) -> Any:
    return embedded(wrap, keras.optimizers.Adadelta(0.5, global_clipnorm=0.05))


@extended
@case
def embedding_rmsprop_clipped_by_value(wrap: Wrap) -> Any:
    return embedded(wrap, keras.optimizers.RMSprop(0.01, clipvalue=0.003))


@case
def embedding_eagerly(wrap: Wrap) -> Any:
    return embedded(wrap, keras.optimizers.Adagrad(0.1), batch_size=13, run_eagerly=True)


@full
@case
def embedding_several_steps_per_execution(wrap: Wrap) -> Any:
    return embedded(wrap, keras.optimizers.Adam(0.01), steps_per_execution=3)


@full
@case
def embedding_batches_smaller_than_ranks(wrap: Wrap) -> Any:
    source = tf.data.Dataset.from_tensor_slices(sentences(7)).batch(2)
    model = compiled(wrap(net()), keras.optimizers.Adagrad(0.1))
    return trained(model, model.fit(source, epochs=2, verbose=0))


@full
@case
def embedding_compiled_by_xla(wrap: Wrap) -> Any:
    """Trained without XLA, evaluated with it."""
    x, y = sentences()
    model = compiled(wrap(net()), keras.optimizers.Adam(0.01), jit_compile=True)
    return results(model, model.fit(x, y, batch_size=8, verbose=0), x, y)


class OwnStep(keras.Model):
    """A user-defined step without dense gradients and without scaling of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.table = keras.layers.Embedding(WORDS, CLASSES)

    def call(self, x: Any) -> Any:
        return tf.reduce_sum(self.table(x), axis=1)

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@case
def embedding_own_step(wrap: Wrap) -> Any:
    x, y = sentences()
    model = wrap(OwnStep())
    model.compile(keras.optimizers.Adam(0.01))
    model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    return {"weights": model.get_weights(), "predict": model.predict(x, verbose=0)}


class Lookups(keras.layers.Layer):
    """Tokens, and positions in the ways in which programs write them; the last table is looked up by both."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [keras.layers.Embedding(WORDS, 3) for _ in range(6)]

    def call(self, x: Any) -> Any:
        tokens, fixed, length, single, repeated, both = self.tables
        positions = ops.arange(ops.shape(x)[-1])
        total = tokens(x) + fixed(ops.arange(LENGTH)) + length(positions) + single(ops.expand_dims(positions, 0))
        total += repeated(ops.broadcast_to(positions, ops.shape(x)))
        return total + both(x) + 2 * both(positions + 1)


class Positions(Lookups):
    """Without the table for both."""

    def call(self, x: Any) -> Any:
        tokens, fixed, length, *_ = self.tables
        return tokens(x) + fixed(ops.arange(LENGTH)) + length(ops.arange(ops.shape(x)[-1]))


class InOwnFunction(Positions):
    """Not called with symbolic inputs: plain Keras would not train the tables of that trace."""

    def __init__(self) -> None:
        super().__init__()
        self.run = tf.function(super().call)

    def build(self, shape: Any) -> None:
        for each in self.tables:
            each.build()

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape, 3)

    def call(self, x: Any) -> Any:
        return self.run(x)


def positioned(wrap: Wrap, optimizer: Any, batch_size: int = 8, layer: Any = Lookups, **options: Any) -> Any:
    words = keras.Input((None,), dtype="int32")
    outputs = keras.layers.Dense(CLASSES)(keras.layers.GlobalMaxPooling1D()(layer()(words)))
    x, y = sentences(19)
    model = compiled(wrap(keras.Model(words, outputs)), optimizer, **options)
    return trained(model, model.fit(x, y, batch_size=batch_size, epochs=2, verbose=0))


@full
@case
def positions_adam(wrap: Wrap) -> Any:
    return positioned(wrap, keras.optimizers.Adam(0.01))


@full
@case
def positions_rmsprop_a_rank_without_rows(wrap: Wrap) -> Any:
    return positioned(wrap, keras.optimizers.RMSprop(0.01), batch_size=2)


@full
@case
def positions_sgd_clipped(wrap: Wrap) -> Any:
    return positioned(wrap, keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.05), steps_per_execution=2)


@case
def positions_eagerly(wrap: Wrap) -> Any:
    return positioned(wrap, keras.optimizers.Adam(0.01), layer=Positions, run_eagerly=True)


@case
def positions_in_a_function(wrap: Wrap) -> Any:
    return positioned(wrap, keras.optimizers.Adam(0.01), layer=InOwnFunction)


class Longer(Positions):
    """Positions as long as sequences to which a token is added, and a number of rows that follows the time."""

    def call(self, x: Any) -> Any:
        tokens, positions, start, *_ = self.tables
        longer = tf.pad(x, [[0, 0], [1, 0]])
        first = start(tf.zeros([tf.shape(tf.transpose(x))[1]], tf.int32))
        return tokens(longer) + positions(tf.range(tf.shape(longer)[1])) + first[:, None]

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], None, 3)


@full
@case
def positions_of_longer_sequences(wrap: Wrap) -> Any:
    return positioned(wrap, keras.optimizers.Adam(0.01), layer=Longer)


class PerRow(Lookups):
    """Start tokens of a decoder, and positions with the rows last, beside the others."""

    def build(self, shape: Any) -> None:
        self.start, self.turned = keras.layers.Embedding(WORDS, 3), keras.layers.Embedding(WORDS, 3)

    def call(self, x: Any) -> Any:
        rows, length = ops.shape(x)
        start = ops.expand_dims(self.start(ops.zeros((rows,), "int32")), 1)
        turned = ops.broadcast_to(ops.expand_dims(ops.arange(length), 1), (length, rows))
        return super().call(x) + start + ops.transpose(self.turned(turned), (1, 0, 2))


def per_row(wrap: Wrap, batch_size: int) -> Any:
    """Batches of a size that TensorFlow knows: what is made of it is a constant."""
    words = keras.Input((None,), dtype="int32")
    outputs = keras.layers.Dense(CLASSES)(keras.layers.GlobalMaxPooling1D()(PerRow()(words)))
    source = tf.data.Dataset.from_tensor_slices(sentences(13)).batch(batch_size, drop_remainder=True)
    model = compiled(wrap(keras.Model(words, outputs)), keras.optimizers.Adam(0.01))
    return trained(model, model.fit(source, epochs=2, verbose=0))


@full
@case
def positions_per_row(wrap: Wrap) -> Any:
    return per_row(wrap, 6)


@full
@case
def positions_per_row_some_ranks_with_one_row(wrap: Wrap) -> Any:
    return per_row(wrap, 4)


class Relative(keras.layers.Layer):
    """Adds up an embedding of the distances between all positions: indices of shape (length, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.distances = keras.layers.Embedding(WORDS, 3), keras.layers.Embedding(2 * LENGTH, 3)

    def call(self, x: Any) -> Any:
        places = ops.arange(LENGTH)
        return self.tokens(x) + ops.sum(self.distances(places[None, :] - places[:, None] + LENGTH), 1)

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape, 3)


@full
@case
def relative_positions_of_as_many_tokens_as_rows(wrap: Wrap) -> Any:
    """Two ranks have 4 rows of 8, three have 4 of 12, and the dataset knows the 8 and 12."""
    words = keras.Input((LENGTH,), dtype="int32")
    outputs = keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling1D()(Relative()(words)))
    model = compiled(wrap(keras.Model(words, outputs)), keras.optimizers.Adam(0.01))
    source = tf.data.Dataset.from_tensor_slices(sentences(25))
    fits = [model.fit(source.batch(size, drop_remainder=True), epochs=2, verbose=0) for size in (8, 12)]
    return [trained(model, each) for each in fits]


class Cut(keras.layers.Layer):
    """Cuts off the padding that all rows of a batch share: ranks have positions of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = keras.layers.Embedding(WORDS, 3), keras.layers.Embedding(LENGTH, 3)

    def call(self, x: Any) -> Any:
        x = x[:, : tf.reduce_max(tf.math.count_nonzero(x, 1, dtype=x.dtype))]
        embedded = self.tokens(x) + self.positions(ops.arange(ops.shape(x)[1]))
        return ops.sum(embedded * ops.cast(x > 0, embedded.dtype)[..., None], 1)

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], 3)


@full
@case
def positions_of_each_rank_its_own_length(wrap: Wrap) -> Any:
    words = keras.Input((LENGTH,), dtype="int32")
    model = compiled(wrap(keras.Model(words, keras.layers.Dense(CLASSES)(Cut()(words)))), keras.optimizers.Adam(0.01))
    x, y = sentences(24)
    x = (x % (WORDS - 1) + 1) * (np.arange(LENGTH) < 1 + np.arange(24)[:, None] * 7 % LENGTH)
    return trained(model, model.fit(x, y, batch_size=3, epochs=2, shuffle=False, verbose=0))


class Unique(keras.layers.Embedding):
    """Looks each row of a batch up once."""

    def call(self, ids: Any) -> Any:
        rows, places = tf.unique(tf.reshape(ids, [-1]))
        return tf.reshape(tf.gather(super().call(rows), places), (-1, ids.shape[1], self.output_dim))


@case
def rows_that_are_unique_within_a_batch(wrap: Wrap) -> Any:
    """Adam treats an index that occurs twice otherwise than one that occurs once."""
    random = np.random.default_rng(2)
    ids, y = random.integers(0, 12, (SAMPLES, 3)), random.integers(0, 3, SAMPLES)
    values = random.normal(size=(SAMPLES, 20)) * (random.uniform(size=(SAMPLES, 20)) < 0.1)
    layers = [keras.Input((3,), dtype="int32"), Unique(12, 4), keras.layers.Flatten()]
    found = []
    for x, inside in ((ids, layers), (tf.sparse.from_dense(values), [keras.Input((20,), sparse=True)])):
        model = compiled(wrap(keras.Sequential([*inside, keras.layers.Dense(3)])), keras.optimizers.Adam(0.05))
        found.append(trained(model, model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)))
    return found
