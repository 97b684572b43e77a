"""Trains, evaluates and predicts with an MLP, on one process or on the ranks of a job, and saves all numbers.

Usage: train_mlp.py FILE [eager] [two_steps] [shuffled] [float32] [masked]
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import keras
import numpy as np

import tarantella as tnt

file, *options = sys.argv[1:]
if "float32" not in options:
    jax.config.update("jax_enable_x64", True)
    keras.config.set_floatx("float64")
    # Otherwise Keras computes some of float64 in float32 on JAX.
    from keras.src.backend.common import dtypes

    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"
keras.utils.set_random_seed(1)
generator = np.random.default_rng(0)
x, y = generator.normal(size=(115, 20)).astype(keras.config.floatx()), generator.integers(0, 4, 115)
weights = generator.uniform(size=115)
layers = [keras.Input((20,)), keras.layers.Dense(32, "tanh", kernel_regularizer="l2"), keras.layers.Dense(4)]
if "masked" in options:  # the mean over the steps that are there takes a sum over the ranks in the loss
    x, y = x.reshape(115, 5, 4), generator.integers(0, 4, (115, 5))
    weights = generator.uniform(size=(115, 5))
    x[::3, 2:] = 0
    layers = [
        keras.Input((5, 4)),
        keras.layers.Masking(),
        keras.layers.LSTM(8, return_sequences=True),
        keras.layers.Dense(4),
    ]
model = tnt.Model(keras.Sequential(layers))
model.compile(
    keras.optimizers.Adam(1e-2, global_clipnorm=0.5),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)],
    run_eagerly="eager" in options,
    jit_compile="eager" not in options,
    steps_per_execution=2 if "two_steps" in options else 1,
)
# A last batch of 15 rows, and one of a single row, which all ranks but one run on a copy of it.
for _ in range(2):  # Keras reads a batch to build the model in the first call only
    fitted = model.fit(
        x,
        y,
        25,
        epochs=2,
        verbose=0,
        shuffle="shuffled" in options,
        sample_weight=weights,
        validation_data=(x[:51], y[:51]),
    )
evaluated = model.evaluate(x, y, batch_size=25, verbose=0, return_dict=True)
numbers = {**fitted.history, **{f"evaluated {name}": value for name, value in evaluated.items()}}
numbers["predicted"] = model.predict(x, batch_size=25, verbose=0)
numbers |= {f"weight {i}": value for i, value in enumerate(model.get_weights())}
assert "tensorflow" not in sys.modules
np.savez(Path(f"{file}.{tnt.get_rank()}.npz"), **numbers)
