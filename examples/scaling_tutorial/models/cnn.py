"""A small convolutional network."""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import layers


def cnn(
    input_shape: Sequence[int] = (32, 32, 3), n_classes: int = 10, dropout: float = 0.2, width: int = 32
) -> keras.Model:
    """Returns a network of four convolutions, two at each resolution, and two dense layers."""
    inputs = keras.Input(shape=tuple(input_shape))
    x = inputs
    for filters in (width, 2 * width):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(x)
        x = layers.Dropout(dropout)(x)
    x = layers.Flatten()(x)
    x = layers.Dense(16 * width, activation="relu")(x)
    x = layers.Dropout(dropout)(x)
    outputs = layers.Dense(n_classes, activation="softmax")(x)
    return keras.Model(inputs, outputs, name="cnn")
