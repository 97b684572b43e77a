#!/usr/bin/env python
"""Trains an image classifier of keras.applications on ImageNet or on made-up images, on one or many processes.

tarantella -n 8 -- ./train_imagenet_main.py --model_arch=resnet50 --batch_size=256 --train_epochs=3 --synthetic_data
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import keras
import tensorflow as tf
from alexnet import AlexNet
from common import imagenet
from common.errors import InputError
from common.image_records import broken_ends
from common.imagenet_check import CURE, count_images
from common.schedules import PiecewiseConstantDecayWithWarmup

import tarantella as tnt

applications = keras.applications
# The model, and the sides that its images must have at least.
ARCHITECTURES: dict[str, tuple[Callable[..., keras.Model], int]] = {
    "alexnet": (AlexNet, 63),
    "densenet121": (applications.densenet.DenseNet121, 32),
    "mobilenetV2": (applications.mobilenet_v2.MobileNetV2, 32),
    "resnet50": (applications.resnet50.ResNet50, 32),
    "resnet101": (applications.resnet.ResNet101, 32),
    "resnet152": (applications.resnet.ResNet152, 32),
    "vgg16": (applications.vgg16.VGG16, 32),
    "vgg19": (applications.vgg19.VGG19, 32),
    **{
        f"efficientnetV2{size}": (getattr(applications.efficientnet_v2, f"EfficientNetV2{size}"), 32)
        for size in ("B0", "B1", "B2", "B3", "S", "M", "L")
    },
}
SYNTHETIC_IMAGES = 16


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model_arch", choices=ARCHITECTURES, default="resnet50", help="(default: %(default)s)")
    add("--data_dir", help="the folder with the TFRecords of ImageNet")
    add("--synthetic_data", action=argparse.BooleanOptionalAction, default=False, help="make up images instead")
    add("--batch_size", type=int, default=64, help="images a step, on all ranks together (default: %(default)s)")
    add("--train_epochs", type=int, default=3, help="(default: %(default)s)")
    add("--val_freq", type=int, default=1, help="epochs between two evaluations (default: %(default)s)")
    add("--train_num_samples", type=int, help="images of an epoch (default: all; 1281167 of synthetic data)")
    add("--val_num_samples", type=int, help="images of an evaluation (default: all; 50000 of synthetic data)")
    add("--drop_remainder", action=argparse.BooleanOptionalAction, default=False, help="leave out incomplete batches")
    add("--shuffle_seed", type=int, default=42, help="(default: %(default)s)")
    add("--verbose", type=int, choices=(0, 1, 2), default=1, help="as in Keras (default: %(default)s)")
    add("--model_dir", help="the folder for TensorBoard: curves, and a profile of the second step")
    add("--image_size", type=int, default=224, help="(default: %(default)s)")
    args = parser.parse_args()
    for name in ("batch_size", "train_epochs", "val_freq", "train_num_samples", "val_num_samples"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}, but must be at least 1")
    if args.image_size < ARCHITECTURES[args.model_arch][1]:
        smallest = ARCHITECTURES[args.model_arch][1]
        parser.error(f"--image_size is {args.image_size}, but {args.model_arch} needs at least {smallest} pixels")
    if args.synthetic_data == bool(args.data_dir):
        parser.error("give either --data_dir or --synthetic_data")
    return args


def load_synthetic_dataset(
    num_samples: int, batch_size: int, dtype: tf.DType, drop_remainder: bool, image_size: int = 224
) -> tf.data.Dataset:
    """Returns batches of a few random images, which repeat, each with a label of its own."""
    random = tf.random.Generator.from_seed(0)
    images = random.normal([SYNTHETIC_IMAGES, image_size, image_size, 3], dtype=dtype)
    dataset = tf.data.Dataset.from_tensor_slices((images, tf.range(SYNTHETIC_IMAGES, dtype=tf.int64)))
    return dataset.repeat().take(num_samples).batch(batch_size, drop_remainder).prefetch(tf.data.AUTOTUNE)


def load_dataset(
    dataset_type: str,
    data_dir: str,
    num_samples: int,
    batch_size: int,
    dtype: tf.DType,
    drop_remainder: bool,
    shuffle_seed: int,
    image_size: int = 224,
) -> tf.data.Dataset:
    """Returns batches of images and labels of ImageNet, `num_samples` an epoch.

    dataset_type: "train" shuffles and augments, "validation" takes the middle of each image in a fixed order.
    """
    files = imagenet.find(Path(data_dir), dataset_type)
    if dataset_type == "train":
        dataset = imagenet.training_images(files, image_size, shuffle_seed, num_samples)
    else:
        dataset = imagenet.validation_images(files, image_size, num_samples)
    dataset = dataset.map(lambda image, label: (tf.cast(image, dtype), label))
    return dataset.batch(batch_size, drop_remainder).prefetch(tf.data.AUTOTUNE)


def set_num_samples(args: argparse.Namespace) -> None:
    """Replaces missing numbers of images. Raises InputError if there are fewer than asked for, or no whole batch."""
    counts = imagenet.NUM_IMAGES if args.synthetic_data else count_images(args.data_dir)
    for name, count in zip(("train_num_samples", "val_num_samples"), counts, strict=True):
        if not args.synthetic_data and (getattr(args, name) or 0) > count:
            raise InputError(f"--{name} is {getattr(args, name)}, but {args.data_dir} has {count} images")
        setattr(args, name, getattr(args, name) or count)
        if args.batch_size > getattr(args, name) and (args.drop_remainder or name == "train_num_samples"):
            raise InputError(f"--batch_size is {args.batch_size}, but --{name} is {getattr(args, name)}")


def load_data(args: argparse.Namespace) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Returns the images to train and to validate."""
    options = {
        "batch_size": args.batch_size,
        "dtype": tf.float32,
        "drop_remainder": args.drop_remainder,
        "image_size": args.image_size,
    }
    if args.synthetic_data:
        return (
            load_synthetic_dataset(num_samples=args.train_num_samples, **options),
            load_synthetic_dataset(num_samples=args.val_num_samples, **options),
        )
    options |= {"data_dir": args.data_dir, "shuffle_seed": args.shuffle_seed}
    return (
        load_dataset(dataset_type="train", num_samples=args.train_num_samples, **options),
        load_dataset(dataset_type="validation", num_samples=args.val_num_samples, **options),
    )


def get_model(args: argparse.Namespace) -> keras.Model:
    """Returns the model with new weights, distributed over the ranks."""
    options = {"include_preprocessing": False} if args.model_arch.startswith("efficientnetV2") else {}
    model = ARCHITECTURES[args.model_arch][0](
        include_top=True,
        weights=None,
        classes=imagenet.NUM_CLASSES,
        input_shape=(args.image_size, args.image_size, 3),
        classifier_activation="softmax",
        **options,
    )
    return tnt.Model(model, parallel_strategy=tnt.ParallelStrategy.DATA)


def main(args: argparse.Namespace) -> None:
    tnt.init()
    keras.utils.set_random_seed(args.shuffle_seed)
    set_num_samples(args)
    train_dataset, val_dataset = load_data(args)
    model = get_model(args)
    lr_schedule = PiecewiseConstantDecayWithWarmup(args.batch_size, epoch_size=args.train_num_samples)
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate=lr_schedule, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    callbacks = []
    if args.model_dir:
        callbacks.append(keras.callbacks.TensorBoard(log_dir=args.model_dir, profile_batch=2))
    history = model.fit(
        train_dataset,
        validation_data=val_dataset,
        validation_freq=args.val_freq,
        epochs=args.train_epochs,
        callbacks=callbacks,
        verbose=args.verbose,
    ).history
    if tnt.is_master_rank():
        print("; ".join(f"{name}: {', '.join(f'{value:.6f}' for value in values)}" for name, values in history.items()))


if __name__ == "__main__":
    try:
        with broken_ends(CURE):
            main(parse_args())
    except InputError as error:
        raise SystemExit(f"train_imagenet_main.py: {error}") from None
