"""From images in memory to batches, and what all data sets share.

As in most Horovod programs, every rank shuffles and augments all of the training images on its own, and an epoch has
1/N of the steps. Only the validation images are split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from utils.errors import InputError

Arrays = tuple[np.ndarray, np.ndarray]  # uint8 images of shape (rows, height, width, channels), labels of shape (rows,)


@dataclass(frozen=True)
class Datasets:
    """Batches of float32 images and one-hot labels."""

    train: tf.data.Dataset  # endless, in an order of this rank's own
    valid: tf.data.Dataset  # this rank's share, once
    steps_per_epoch: int
    image_shape: tuple[int, ...]
    n_classes: int


def of_arrays(
    train: Arrays,
    valid: Arrays,
    n_classes: int,
    batch_size: int,
    rank: int,
    n_ranks: int,
    augment: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> Datasets:
    """Returns the batches of images in memory. `augment` changes one training image. Seed Keras before, by rank."""
    check_share(len(valid[0]), n_ranks)
    images = tf.data.Dataset.from_tensor_slices(train).shuffle(len(train[0])).repeat()
    if augment:
        images = images.map(lambda x, y: (augment(x), y), num_parallel_calls=tf.data.AUTOTUNE)

    def prepare(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(x, tf.float32) / 127.5 - 1, tf.one_hot(y, n_classes)

    share = tf.data.Dataset.from_tensor_slices(tuple(array[rank::n_ranks] for array in valid))
    return Datasets(
        train=images.batch(batch_size, drop_remainder=True).map(prepare).prefetch(tf.data.AUTOTUNE),
        valid=share.batch(batch_size).map(prepare).prefetch(tf.data.AUTOTUNE),
        steps_per_epoch=steps(len(train[0]), batch_size, n_ranks),
        image_shape=train[0].shape[1:],
        n_classes=n_classes,
    )


def steps(n_train: int, batch_size: int, n_ranks: int) -> int:
    """Returns the steps of an epoch, in which all ranks together read about all training images."""
    return max(n_train // (batch_size * n_ranks), 1)


def check_share(n_valid: int, n_ranks: int) -> None:
    if n_valid < n_ranks:
        raise InputError(f"{n_valid} validation images cannot be split among {n_ranks} ranks: each needs one")
