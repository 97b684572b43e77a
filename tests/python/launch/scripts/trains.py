"""Trains a model in the way that the first argument names: what `tarantella verify` is to find.

Neither weights nor shuffles are seeded: verify sees to it that both runs start alike. The optimizer is not Adam, which
makes full steps of gradients that only rounding decides.
"""

import sys

import keras
import numpy as np

import tarantella as tnt

kind, size = sys.argv[1], tnt.get_size()
if kind == "float64 batches":
    keras.config.set_floatx("float64")
random = np.random.default_rng(0)
x = random.normal(size=(101, 6)).astype(keras.config.floatx())
y = random.integers(0, 3, 101)


class Variance(keras.layers.Layer):
    def call(self, x):
        self.add_loss(keras.ops.mean(keras.ops.var(x, axis=0)))
        return x


class ByRank(keras.layers.Layer):
    def call(self, x):
        return x * (1 + 0.5 * tnt.get_rank())


class Coupled(keras.layers.Layer):
    def call(self, x):
        return x - keras.ops.mean(x, axis=0)


def summed(y, p):
    return keras.ops.sum(keras.losses.sparse_categorical_crossentropy(y, p))


if kind == "shuffled":
    import tensorflow as tf

    unseeded = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(200).batch(20)


def model(*more, built=True):
    inputs = [keras.layers.Input((6,))] if built else []
    layers = [*inputs, keras.layers.Dense(8, "relu"), *more, keras.layers.Dense(3, "softmax")]
    made = tnt.Model(keras.Sequential(layers))
    rate = 0.01 * (size if kind == "rate" else 1)
    made.compile(
        keras.optimizers.SGD(rate, momentum=0.9), summed if kind == "sum" else "sparse_categorical_crossentropy"
    )
    return made


if kind == "fails" or (kind == "fails on ranks" and size > 1):
    raise RuntimeError("there is no such file")
if kind == "never":
    sys.exit()
if kind == "data":
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(200, seed=tnt.get_rank()).batch(20)
    model().fit(dataset, verbose=0)
elif kind == "shuffled":
    model().fit(unseeded, verbose=0)
elif kind == "second":
    model().fit(x, y, batch_size=51, verbose=0)
    model(keras.layers.Dropout(0.5)).fit(x, y, batch_size=51, verbose=0)
elif kind in ("float64 batches", "dropout in batches"):
    made = model(*[keras.layers.Dropout(0.5)] * (kind != "float64 batches"), built=False)  # by its first batch
    for start in range(0, 100, 20):
        made.train_on_batch(x[start : start + 20], y[start : start + 20])
else:
    layer = {
        "dropout": keras.layers.Dropout(0.5),
        "normalization": keras.layers.BatchNormalization(),
        "synchronized": keras.Sequential([keras.layers.BatchNormalization(synchronized=True), ByRank(name="by_rank")]),
        "variance": Variance(),
        "by rank": ByRank(name="by_rank"),
        "coupled": Coupled(),
    }.get(kind)
    made = model(*[layer] if layer else [])
    callbacks = keras.callbacks.CallbackList([keras.callbacks.Callback()], add_history=True, model=made.keras_model)
    for epochs in (1, 2):
        made.fit(x, y, batch_size=20 * (size if kind == "rows" else 1), epochs=epochs, verbose=0, callbacks=callbacks)
open("went on", "w").close()
