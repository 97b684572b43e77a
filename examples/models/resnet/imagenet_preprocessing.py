"""The input pipeline of ResNet-50: batches of ImageNet, as TensorFlow Datasets or the Model Garden prepare it."""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`
from common import imagenet

NUM_CLASSES = imagenet.NUM_CLASSES
DEFAULT_IMAGE_SIZE = 224


def input_fn(
    is_training: bool,
    data_dir: str,
    batch_size: int,
    shuffle_seed: int = 42,
    drop_remainder: bool = False,
    image_size: int = DEFAULT_IMAGE_SIZE,
    num_images: int | None = None,
) -> tf.data.Dataset:
    """Returns one epoch of batches of images and labels.

    Args:
        is_training: shuffle, cut out and mirror at random. Otherwise the middle of each image, in a fixed order.
        data_dir: the folder with the TFRecords. Up to two folders below are searched.
        batch_size: of all ranks together.
        num_images: how many images to take, which the files have at least (default: all).

    Raises InputError if there are no such files.
    """
    files = imagenet.find(Path(data_dir), "train" if is_training else "validation")
    if is_training:
        dataset = imagenet.training_images(files, image_size, shuffle_seed, num_images)
    else:
        dataset = imagenet.validation_images(files, image_size, num_images)
    return dataset.batch(batch_size, drop_remainder).prefetch(tf.data.AUTOTUNE)
