#!/usr/bin/env python
"""Trains ResNet-50 on ImageNet, on one or many processes.

tarantella -n 8 -- resnet50_tnt.py --data_dir=/data --batch_size=512 --train_epochs=90 --epochs_between_evals=10
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`

import imagenet_preprocessing
import keras
import resnet_model
from common.checkpoints import restore
from common.errors import InputError
from common.image_records import broken_ends
from common.imagenet_check import CURE, count_images
from common.schedules import PiecewiseConstantDecayWithWarmup
from common.time_history import TimeHistory

import tarantella as tnt

POLICIES = {"fp32": "float32", "fp16": "mixed_float16", "bf16": "mixed_bfloat16"}
CHECKPOINT = "model-{epoch:04d}.weights.h5"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data_dir", required=True, help="the folder with the TFRecords, of TensorFlow Datasets or the Model Garden")
    add("--batch_size", type=int, default=256, help="images a step, on all ranks together (default: %(default)s)")
    add("--train_epochs", type=int, default=90, help="(default: %(default)s)")
    add("--epochs_between_evals", type=int, default=1, help="epochs between two evaluations (default: %(default)s)")
    add("--image_size", type=int, default=imagenet_preprocessing.DEFAULT_IMAGE_SIZE, help="(default: %(default)s)")
    add("--dtype", choices=POLICIES, default="fp32", help="fp16 and bf16: mixed precision (default: %(default)s)")
    add("--sync_batch_norm", action="store_true", help="normalize over the images of all ranks (default: of each)")
    add("--model_dir", help="the folder for checkpoints and TensorBoard")
    add("--enable_checkpoint_and_export", action="store_true", help="write a checkpoint after each epoch")
    add("--resume", action="store_true", help="continue from the newest checkpoint in --model_dir")
    add("--enable_tensorboard", action="store_true", help="write curves and a profile of the second step")
    add("--enable_time_history", action="store_true", help="log the speed of training")
    add("--log_steps", type=int, default=100, help="steps between two lines of the speed (default: %(default)s)")
    add("--verbose", type=int, choices=(0, 1, 2), default=1, help="as in Keras (default: %(default)s)")
    args = parser.parse_args()
    for name in ("batch_size", "train_epochs", "epochs_between_evals", "log_steps"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}, but must be at least 1")
    if args.image_size < 32:
        parser.error(f"--image_size is {args.image_size}, but ResNet-50 needs at least 32 pixels")
    if not args.model_dir and (args.enable_checkpoint_and_export or args.resume or args.enable_tensorboard):
        parser.error("checkpoints and TensorBoard need --model_dir")
    return args


def get_callbacks(args: argparse.Namespace) -> list[keras.callbacks.Callback]:
    callbacks: list[keras.callbacks.Callback] = []
    if args.enable_tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(log_dir=args.model_dir, profile_batch=2))
    if args.enable_checkpoint_and_export:
        ckpt_full_path = os.path.join(args.model_dir, CHECKPOINT)
        callbacks.append(keras.callbacks.ModelCheckpoint(ckpt_full_path, save_weights_only=True))
    if args.enable_time_history and tnt.is_master_rank():
        callbacks.append(TimeHistory(args.batch_size, args.log_steps, logdir=args.model_dir))
    return callbacks


def main(args: argparse.Namespace) -> None:
    tnt.init()
    logging.basicConfig(level=logging.INFO if tnt.is_master_rank() else logging.WARNING, format="%(message)s")
    keras.utils.set_random_seed(42)
    keras.mixed_precision.set_dtype_policy(POLICIES[args.dtype])
    train_images, validation_images = count_images(args.data_dir)
    if args.batch_size > train_images:
        raise InputError(f"--batch_size is {args.batch_size}, but {args.data_dir} has {train_images} images to train")

    model = resnet_model.resnet50(imagenet_preprocessing.NUM_CLASSES, args.image_size, args.sync_batch_norm)
    model = tnt.Model(model)
    lr_schedule = PiecewiseConstantDecayWithWarmup(args.batch_size, epoch_size=train_images)
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate=lr_schedule, momentum=0.9),
        loss="sparse_categorical_crossentropy",
        metrics=["sparse_categorical_accuracy", keras.metrics.SparseTopKCategoricalAccuracy(5, name="top_5")],
    )
    first_epoch = restore(model, args.model_dir, CHECKPOINT) if args.resume else 0
    if first_epoch >= args.train_epochs:
        done = "All %d epochs are done: the newest checkpoint in %s is of epoch %d"
        logging.info(done, args.train_epochs, args.model_dir, first_epoch)
        return
    logging.info("Training starts after epoch %d, with %d steps an epoch", first_epoch, train_images // args.batch_size)

    train_dataset = imagenet_preprocessing.input_fn(
        is_training=True,
        data_dir=args.data_dir,
        batch_size=args.batch_size,
        shuffle_seed=42 + first_epoch,  # a run that is resumed reads in another order
        drop_remainder=True,
        image_size=args.image_size,
        num_images=train_images,
    )
    validation_dataset = imagenet_preprocessing.input_fn(
        is_training=False,
        data_dir=args.data_dir,
        batch_size=args.batch_size,
        image_size=args.image_size,
        num_images=validation_images,
    )
    callbacks = get_callbacks(args)
    for epoch in range(first_epoch, args.train_epochs, args.epochs_between_evals):
        until = min(epoch + args.epochs_between_evals, args.train_epochs)
        history = model.fit(
            train_dataset, initial_epoch=epoch, epochs=until, callbacks=callbacks, verbose=args.verbose
        ).history
        results = model.evaluate(validation_dataset, return_dict=True, verbose=args.verbose)
        logging.info(
            "Epoch %d: loss %.6f, top-1 %.4f, top-5 %.4f; validation: loss %.6f, top-1 %.4f, top-5 %.4f",
            until,
            *(history[name][-1] for name in ("loss", "sparse_categorical_accuracy", "top_5")),
            *(results[name] for name in ("loss", "sparse_categorical_accuracy", "top_5")),
        )


if __name__ == "__main__":
    try:
        with broken_ends(CURE):
            main(parse_args())
    except InputError as error:
        raise SystemExit(f"resnet50_tnt.py: {error}") from None
