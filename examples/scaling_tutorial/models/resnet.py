"""Residual networks of bottleneck blocks: ResNet-50, and a smaller one of 26 layers.

Layers are counted as in the literature: convolutions and dense layers, without the convolutions on shortcuts.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import layers

EXPANSION = 4  # a block puts out this many times the filters of its narrow convolutions


def conv_bn(
    x: keras.KerasTensor, filters: int, size: int, stride: int = 1, name: str | None = None
) -> keras.KerasTensor:
    """Appends a convolution and its normalization, which has the bias."""
    x = layers.Conv2D(filters, size, stride, padding="same", use_bias=False, kernel_initializer="he_normal", name=name)(
        x
    )
    return layers.BatchNormalization(momentum=0.9)(x)


def bottleneck(x: keras.KerasTensor, filters: int, stride: int) -> keras.KerasTensor:
    """Appends three convolutions: fewer channels, a view of the neighbours, more channels again."""
    x = layers.ReLU()(conv_bn(x, filters, 1))
    x = layers.ReLU()(conv_bn(x, filters, 3, stride))
    return conv_bn(x, EXPANSION * filters, 1)


def identity_block(x: keras.KerasTensor, filters: int) -> keras.KerasTensor:
    """Appends a block that adds to its input. The input has `4 * filters` channels, and so has the output."""
    return layers.ReLU()(layers.Add()([x, bottleneck(x, filters, stride=1)]))


def conv_block(x: keras.KerasTensor, filters: int, stride: int, name: str) -> keras.KerasTensor:
    """Appends a block whose shortcut is a convolution, since it changes the number of channels or the resolution."""
    shortcut = conv_bn(x, EXPANSION * filters, 1, stride, name=f"{name}_shortcut")
    return layers.ReLU()(layers.Add()([shortcut, bottleneck(x, filters, stride)]))


def stages(x: keras.KerasTensor, blocks: Sequence[int], width: int) -> keras.KerasTensor:
    """Appends stages of blocks. From the second on, each halves the resolution and doubles the filters."""
    for stage, count in enumerate(blocks):
        filters = width * 2**stage
        x = conv_block(x, filters, stride=1 if stage == 0 else 2, name=f"stage{stage + 1}")
        for _ in range(count - 1):
            x = identity_block(x, filters)
    return x


def classifier(
    inputs: keras.KerasTensor, x: keras.KerasTensor, n_classes: int, dropout: float, name: str
) -> keras.Model:
    """Returns the model that classifies the mean of `x` over its pixels."""
    x = layers.GlobalAveragePooling2D()(x)
    if dropout:
        x = layers.Dropout(dropout)(x)
    # float32: with mixed precision, too
    outputs = layers.Dense(n_classes, activation="softmax", dtype="float32")(x)
    return keras.Model(inputs, outputs, name=name)


def resnet_small(
    input_shape: Sequence[int] = (32, 32, 3), n_classes: int = 10, dropout: float = 0.0, width: int = 16
) -> keras.Model:
    """Returns a ResNet of 26 layers for small images: one convolution, four stages of two blocks, one dense layer."""
    inputs = keras.Input(shape=tuple(input_shape))
    x = layers.ReLU()(conv_bn(inputs, width, 3))
    x = stages(x, (2, 2, 2, 2), width)
    return classifier(inputs, x, n_classes, dropout, "resnet_small")


def resnet50(
    input_shape: Sequence[int] = (224, 224, 3), n_classes: int = 1000, dropout: float = 0.0, width: int = 64
) -> keras.Model:
    """Returns ResNet-50 for large images: one convolution, stages of 3, 4, 6 and 3 blocks, one dense layer."""
    inputs = keras.Input(shape=tuple(input_shape))
    x = layers.ReLU()(conv_bn(inputs, width, 7, stride=2))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = stages(x, (3, 4, 6, 3), width)
    return classifier(inputs, x, n_classes, dropout, "resnet50")
