"""ImageNet from TFRecords, as TensorFlow Datasets or the TensorFlow Model Garden write them."""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf

from .pipeline import Datasets, check_share, steps

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`
from common import imagenet


def get_datasets(
    batch_size: int,
    rank: int,
    n_ranks: int,
    *,
    data_dir: str,
    image_size: int = 224,
    n_classes: int = 1000,
    n_train: int = 1_281_167,
    n_valid: int = 50_000,
) -> Datasets:
    """Reads the TFRecords below `data_dir`, which have `n_train` and `n_valid` images."""
    check_share(n_valid, n_ranks)
    train, valid = (imagenet.find(Path(data_dir), split) for split in ("train", "validation"))

    def prepare(images: tf.data.Dataset, training: bool) -> tf.data.Dataset:
        def of(jpeg: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            tf.debugging.assert_less(label, tf.constant(n_classes, tf.int64), "a label is not below data.n_classes")
            seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32) if training else None
            return imagenet.decode(jpeg, image_size, seed), tf.one_hot(label, n_classes)

        return images.map(of, num_parallel_calls=tf.data.AUTOTUNE).batch(batch_size, drop_remainder=training)

    share = imagenet.read(valid, shuffle=False).apply(tf.data.experimental.assert_cardinality(n_valid))
    return Datasets(
        train=prepare(imagenet.read(train, shuffle=True).repeat(), training=True).prefetch(tf.data.AUTOTUNE),
        valid=prepare(share.shard(n_ranks, rank), training=False).prefetch(tf.data.AUTOTUNE),
        steps_per_epoch=steps(n_train, batch_size, n_ranks),
        image_shape=(image_size, image_size, 3),
        n_classes=n_classes,
    )
