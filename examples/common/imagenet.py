"""ImageNet in TFRecords: finds the files, reads them, and turns their JPEGs into images of one size.

Random numbers follow from seeds that a training image gets with its place in the epoch, and images are shuffled anew
for each epoch. So every process draws the same ones, and an image is cut in another way in each epoch.

Two layouts are known: `imagenet2012-train.tfrecord-00000-of-01024`, which TensorFlow Datasets prepares, and
`train-00000-of-01024`, which the scripts of the TensorFlow Model Garden write.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from .errors import InputError
from .image_records import Files, Layout
from .records import find_shards

MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of the pixels of ImageNet
SHUFFLED_IMAGES = 10_000
NUM_CLASSES = 1000
NUM_IMAGES = (1_281_167, 50_000)  # to train and to validate


LAYOUTS = (
    Layout("TensorFlow Datasets", "imagenet2012-{split}.tfrecord-*-of-*", "image", "label", 0, NUM_CLASSES),
    Layout("Model Garden", "{split}-*-of-*", "image/encoded", "image/class/label", 1, NUM_CLASSES),
)


def find(folder: Path, split: str) -> Files:
    """Finds the files of `split` ("train" or "validation") in `folder`, or up to two folders below.

    Of several versions it takes the newest. Raises InputError if files are missing.
    """
    if not folder.is_dir():
        raise InputError(f"the data folder {folder} does not exist")
    for layout in LAYOUTS:
        pattern = layout.pattern.format(split=split)
        paths = find_shards(folder, (depth + pattern for depth in ("", "*/", "*/*/")))
        if paths:
            return Files(split, layout, [str(path) for path in paths])
    patterns = " or ".join(layout.pattern.format(split=split) for layout in LAYOUTS)
    raise InputError(f"the data folder {folder} has no TFRecords of ImageNet ({patterns})")


def read(files: Files, shuffle: bool, seed: int | None = None, num_images: int | None = None) -> tf.data.Dataset:
    """Returns pairs of a JPEG (string) and its label (int64, from 0).

    shuffle: read the files in a random order, and shuffle images within a buffer. Otherwise the order is fixed.
    num_images: take this many, which the files have at least. Keras then knows the number of steps.
    """
    layout = files.layout
    features = {
        layout.image: tf.io.FixedLenFeature([], tf.string),
        layout.label: tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, features)
        return parsed[layout.image], parsed[layout.label] - layout.first_label

    paths = tf.data.Dataset.from_tensor_slices(files.paths)
    if shuffle:
        paths = paths.shuffle(len(files.paths), seed)
    records = paths.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    if shuffle:
        records = records.shuffle(SHUFFLED_IMAGES, seed)
    if num_images is not None:
        records = records.take(num_images).apply(tf.data.experimental.assert_cardinality(num_images))
    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def decode(jpeg: tf.Tensor, size: int, seed: tf.Tensor | None = None) -> tf.Tensor:
    """Returns a normalized float32 image of shape (size, size, 3).

    seed: two integers; they choose a part of 8 to 100 % of the image, mirrored or not. Without them, the middle.
    """
    if seed is None:
        image = tf.image.decode_and_crop_jpeg(jpeg, middle_box(tf.image.extract_jpeg_shape(jpeg)), channels=3)
    else:
        image = tf.image.decode_and_crop_jpeg(jpeg, random_box(tf.image.extract_jpeg_shape(jpeg), seed), channels=3)
        image = tf.image.stateless_random_flip_left_right(image, seed)
    image = tf.image.resize(image, [size, size])
    return tf.ensure_shape((image - MEAN) / DEVIATION, [size, size, 3])


def random_box(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns (top, left, height, width) of a random part of an image."""
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([1, 0, 4]),
        seed,
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        min_object_covered=0.0,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], extent[:2]], axis=0)


def middle_box(shape: tf.Tensor) -> tf.Tensor:
    """Returns (top, left, height, width) of the square in the middle, 7/8 of the shorter side wide."""
    side = tf.maximum(tf.minimum(shape[0], shape[1]) * 7 // 8, 1)
    return tf.stack([(shape[0] - side) // 2, (shape[1] - side) // 2, side, side])


def training_images(files: Files, size: int, seed: int, num_images: int | None = None) -> tf.data.Dataset:
    """Returns pairs of an image and its label, shuffled and augmented."""

    def prepare(place: tf.Tensor, example: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        jpeg, label = example
        return decode(jpeg, size, tf.stack([tf.constant(seed, tf.int64), place])), label

    images = read(files, shuffle=True, seed=seed, num_images=num_images).enumerate()
    return images.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)


def validation_images(files: Files, size: int, num_images: int | None = None) -> tf.data.Dataset:
    """Returns pairs of an image and its label, always in the same order."""

    def prepare(jpeg: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return decode(jpeg, size), label

    return read(files, shuffle=False, num_images=num_images).map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
