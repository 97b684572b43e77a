"""The networks of the benchmarks, with synthetic data of their shapes."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers


class Net(NamedTuple):
    """A model, the shape of one sample, and the rows per rank of a batch."""

    model: Any
    shape: tuple[int, ...]
    rows: int


def lenet5() -> Net:
    """LeNet-5 with 61,706 parameters."""
    model = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(6, 5, padding="same", activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(16, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(120, activation="tanh"),
            layers.Dense(84, activation="tanh"),
            layers.Dense(10),
        ]
    )
    return Net(model, (28, 28, 1), 64)


def _block(x: Any, filters: int, stride: int) -> Any:
    y = layers.Conv2D(filters, 3, stride, padding="same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    y = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same", use_bias=False)(y))
    if stride != 1:
        x = layers.BatchNormalization()(layers.Conv2D(filters, 1, stride, use_bias=False)(x))
    return layers.ReLU()(layers.Add()([x, y]))


def resnet20() -> Net:
    """ResNet-20 for 32x32 images, with a projection wherever the size changes."""
    inputs = layers.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    for filters in (16, 32, 64):
        for block in range(3):
            x = _block(x, filters, 2 if filters > 16 and block == 0 else 1)
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    return Net(keras.Model(inputs, outputs), (32, 32, 3), 32)


def mlp() -> Net:
    """A multi-layer perceptron with 25,205,770 parameters: large gradients, little computation."""
    hidden = [layers.Dense(3072, activation="relu") for _ in range(3)]
    return Net(keras.Sequential([layers.Input((2048,)), *hidden, layers.Dense(10)]), (2048,), 32)


def transformer() -> Net:
    """A Transformer encoder with 1,050,378 parameters that classifies texts of 64 tokens out of 2,000."""
    tokens = layers.Input((64,), dtype="int32")
    positions = keras.ops.cumsum(keras.ops.ones_like(tokens), axis=1) - 1
    x = layers.Embedding(2000, 128)(tokens) + layers.Embedding(64, 128)(positions)
    for _ in range(4):
        attended = layers.MultiHeadAttention(4, 32)(x, x)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="relu")(x)))
    outputs = layers.Dense(10)(layers.GlobalAveragePooling1D()(x))
    return Net(keras.Model(tokens, outputs), (64,), 32)


NETS = {"lenet5": lenet5, "resnet20": resnet20, "mlp": mlp, "transformer": transformer}


def data(net: Net, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns `rows` random samples, of tokens or of numbers, and their labels from 0 to 9."""
    random = np.random.default_rng(0)
    if "int" in str(net.model.inputs[0].dtype):
        return random.integers(0, 2000, (rows, *net.shape), dtype=np.int32), random.integers(0, 10, rows)
    return random.standard_normal((rows, *net.shape), dtype=np.float32), random.integers(0, 10, rows)


def compile_net(net: Net, metrics: list[Any] | None = None) -> None:
    """Compiles the network with SGD with momentum and a cross-entropy loss."""
    optimizer = keras.optimizers.SGD(0.001, momentum=0.9)
    net.model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=metrics)
