"""AlexNet (Krizhevsky, arXiv:1404.5997): five convolutions and three dense layers, without normalization."""

from __future__ import annotations

import keras
from keras import layers


def AlexNet(  # noqa: N802 -- named like the models in keras.applications
    include_top: bool = True,
    weights: None = None,
    classes: int = 1000,
    input_shape: tuple[int, int, int] = (224, 224, 3),
    classifier_activation: str = "softmax",
) -> keras.Model:
    """Returns the model with new weights. Images have at least 63 pixels a side."""
    if not include_top or weights is not None:
        raise ValueError("AlexNet has no weights to load, and always has its dense layers")
    inputs = keras.Input(input_shape)
    x = layers.ZeroPadding2D(2)(inputs)
    x = layers.Conv2D(64, 11, strides=4, activation="relu")(x)
    x = layers.MaxPooling2D(3, strides=2)(x)
    x = layers.Conv2D(192, 5, padding="same", activation="relu")(x)
    x = layers.MaxPooling2D(3, strides=2)(x)
    for filters in (384, 256, 256):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling2D(3, strides=2)(x)
    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dropout(0.5)(x)
        x = layers.Dense(4096, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(classes, classifier_activation)(x), name="alexnet")
