"""ResNet-50, version 1.5: a block that halves the resolution does so in its 3 x 3 convolution."""

from __future__ import annotations

import keras
from keras import layers

BLOCKS = (3, 4, 6, 3)  # of each stage
WEIGHT_DECAY = 1e-4


def resnet50(num_classes: int, image_size: int = 224, synchronized: bool = False) -> keras.Model:
    """Returns the model, with probabilities in float32 as outputs.

    synchronized: BatchNormalization over the images of all ranks, not of each.
    """

    def convolution(
        x: keras.KerasTensor, filters: int, size: int, stride: int = 1, gamma: str = "ones"
    ) -> keras.KerasTensor:
        """Appends a convolution and its normalization, which has the bias."""
        x = layers.Conv2D(
            filters,
            size,
            stride,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            kernel_regularizer=keras.regularizers.L2(WEIGHT_DECAY),
        )(x)
        return layers.BatchNormalization(
            momentum=0.9, epsilon=1e-5, gamma_initializer=gamma, synchronized=synchronized
        )(x)

    def block(x: keras.KerasTensor, filters: int, stride: int, is_first: bool) -> keras.KerasTensor:
        """Appends three convolutions, and adds the input of the block. The first block of a stage changes its shape.

        With zeros as the last gamma, a new block returns its shortcut. Goyal et al. recommend it for large batches.
        """
        shortcut = convolution(x, 4 * filters, 1, stride) if is_first else x
        x = layers.ReLU()(convolution(x, filters, 1))
        x = layers.ReLU()(convolution(x, filters, 3, stride))
        return layers.ReLU()(layers.Add()([convolution(x, 4 * filters, 1, gamma="zeros"), shortcut]))

    inputs = keras.Input((image_size, image_size, 3))
    x = layers.ReLU()(convolution(inputs, 64, 7, stride=2))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage, count in enumerate(BLOCKS):
        for number in range(count):
            is_first = number == 0
            x = block(x, 64 * 2**stage, stride=2 if stage and is_first else 1, is_first=is_first)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.01),
        kernel_regularizer=keras.regularizers.L2(WEIGHT_DECAY),
        bias_regularizer=keras.regularizers.L2(WEIGHT_DECAY),
    )(x)
    return keras.Model(inputs, layers.Softmax(dtype="float32")(x), name="resnet50")
