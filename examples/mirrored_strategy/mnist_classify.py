#!/usr/bin/env python
"""Trains ResNet-50 on photographs of cassava leaves. It was written for tf.distribute.MirroredStrategy.

    tarantella -- mnist_classify.py --batch-size-per-replica=32 --epochs=15

Without the launcher the same script is plain Keras on one process.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from time import perf_counter

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import cassava
import keras
import tensorflow as tf
from common.errors import InputError
from common.image_records import broken_ends

import tarantella as tnt

SEED = 42
WEIGHTS = "resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--batch-size-per-replica", type=int, default=32, metavar="N", help="images a step on each rank (default: 32)")
    add("--epochs", type=int, default=15, metavar="N", help="number of epochs to train (default: 15)")
    add("--data-dir", type=Path, help="folder with cassava/<version>/, or train/<class>/*.jpg (default: here)")
    add("--image-size", type=int, default=300, metavar="PIXELS", help="images are resized to it (default: 300)")
    add("--skip-broken", action="store_true", help="leave out images that are broken (default: stop)")
    add("--sync-batch-norm", action="store_true", help="normalize the images of all ranks together")
    args = parser.parse_args()
    for name, least in (("batch_size_per_replica", 1), ("epochs", 1), ("image_size", 32)):
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name)}, but must be at least {least}")
    return args


def preprocess_data(image: tf.Tensor, label: tf.Tensor, size: int = 300) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes a JPEG to a float32 image of shape (size, size, 3), from 0 to 1."""
    image = tf.io.decode_jpeg(image, channels=3)
    image = tf.image.resize(image, (size, size))
    return tf.cast(image, tf.float32) / 255.0, label


def create_dataset(batch_size_per_replica: int, datasets: cassava.Datasets, size: int = 300) -> tf.data.Dataset:
    """Returns global batches. Each rank decodes only its own images, since `map` comes right before `batch`."""
    batch_size = batch_size_per_replica * tnt.get_size()
    return (
        datasets["train"]
        .cache()
        .shuffle(1000, seed=SEED)
        .map(lambda image, label: preprocess_data(image, label, size), num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size)
        .prefetch(tf.data.AUTOTUNE)
    )


def imagenet_weights() -> str | None:
    """Returns "imagenet" if download_data_and_weights.py has put the file where Keras looks for it."""
    folder = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "models"
    if (folder / WEIGHTS).exists():
        return "imagenet"
    if tnt.is_master_rank():
        print(f"{folder / WEIGHTS} is not there: training starts from random weights")
    return None


def create_model(num_classes: int, weights: str | None = "imagenet") -> keras.Model:
    base_model = keras.applications.ResNet50(weights=weights, include_top=False)
    x = base_model.output
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dense(1016, activation="relu")(x)
    predictions = keras.layers.Dense(num_classes, activation="softmax")(x)
    return keras.Model(inputs=base_model.input, outputs=predictions)


def train(epochs: int, num_classes: int, train_dataset: tf.data.Dataset, sync_batch_norm: bool = False) -> None:
    model = create_model(num_classes, imagenet_weights())
    if sync_batch_norm:
        for layer in model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.synchronized = True
    model = tnt.Model(model)
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=keras.optimizers.Adam(learning_rate=0.0001),
        metrics=["accuracy"],
    )
    start_time = perf_counter()
    model.fit(train_dataset, epochs=epochs, verbose="auto" if sys.stdout.isatty() else 2)
    if tnt.is_master_rank():
        print("Training time:", perf_counter() - start_time)


def print_info(num_replicas_in_sync: int, batch_size_per_replica: int, info: cassava.Info, num_classes: int) -> None:
    on_gpus = bool(tf.config.list_physical_devices("GPU"))
    on_cpus = f"0 ({num_replicas_in_sync} rank{'s' if num_replicas_in_sync > 1 else ''} on CPUs)"
    print(f"TF Version: {tf.__version__}")
    print(f"Number of GPUs: {num_replicas_in_sync if on_gpus else on_cpus}")
    print(f"Batch size per GPU: {batch_size_per_replica}")
    print(f"Train records: {info.num_examples['train']}")
    print(f"Test records:  {info.num_examples['test']}")
    print(f"Number of classes: {num_classes}")


def main() -> None:
    args = parse_args()
    tnt.init()
    keras.utils.set_random_seed(SEED)
    datasets, info = cassava.load(args.data_dir, args.skip_broken)
    if tnt.is_master_rank():
        print(f"Data: {info.origin}")

    train_dataset = create_dataset(args.batch_size_per_replica, datasets, args.image_size)
    train(args.epochs, info.num_classes, train_dataset, args.sync_batch_norm)
    if tnt.is_master_rank():
        print_info(tnt.get_size(), args.batch_size_per_replica, info, info.num_classes)


if __name__ == "__main__":
    try:
        with broken_ends(cassava.CURE):
            main()
    except InputError as error:
        raise SystemExit(f"mnist_classify.py: {error}") from None
