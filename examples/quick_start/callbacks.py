#!/usr/bin/env python
"""Trains LeNet-5 with checkpoints, a schedule of learning rates, and TensorBoard.

tarantella -n 2 -- callbacks.py --model_dir=run
TNT_TENSORBOARD_ON_ALL_DEVICES=true tarantella -n 2 -- callbacks.py --model_dir=run
tensorboard --logdir run
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import mnist
import tensorflow as tf
from model import SEED, lenet5_model_generator

import tarantella as tnt


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", type=Path, default="run", help="folder of the files (default: %(default)s)")
    parser.add_argument("--train_epochs", type=int, default=3)
    args = parser.parse_args()
    if args.train_epochs < 1:
        parser.error(f"--train_epochs is {args.train_epochs}, but training takes at least one")
    return args


def schedule(epoch: int, learning_rate: float) -> float:
    """Halves the learning rate in every epoch but the first."""
    return learning_rate if epoch == 0 else learning_rate / 2


def main() -> None:
    args = parse_args()
    tnt.init()
    keras.utils.set_random_seed(SEED)

    _, train, test = mnist.load()
    train_dataset = tf.data.Dataset.from_tensor_slices(train).shuffle(len(train[0]), seed=SEED).batch(64)
    val_dataset = tf.data.Dataset.from_tensor_slices(test).batch(64)
    model = tnt.Model(lenet5_model_generator())
    model.compile(keras.optimizers.Adam(0.002), keras.losses.SparseCategoricalCrossentropy(), metrics=["acc"])

    # The first writes whole models, the second the weights of the best epoch. Keras 3 wants a suffix for both.
    checkpoints = [
        keras.callbacks.ModelCheckpoint(
            filepath=str(args.model_dir / "epoch-{epoch}.keras"),
            monitor="val_acc",
            verbose=1,
            save_best_only=False,
            save_weights_only=False,
            mode="auto",
            save_freq="epoch",
        ),
        keras.callbacks.ModelCheckpoint(
            str(args.model_dir / "best.weights.h5"), monitor="val_acc", save_best_only=True, save_weights_only=True
        ),
    ]
    callbacks = [
        *checkpoints,
        keras.callbacks.LearningRateScheduler(schedule, verbose=1),
        keras.callbacks.TensorBoard(log_dir=str(args.model_dir / "logs"), profile_batch=0),
    ]
    history = model.fit(
        train_dataset,
        validation_data=val_dataset,
        epochs=args.train_epochs,
        shuffle=False,  # the dataset shuffles
        callbacks=callbacks,
        verbose=2,
    )

    # Training goes on from a checkpoint: the optimizer's state and the learning rate are in it.
    tnt.barrier()  # the master may still be writing the last one
    resumed = tnt.models.load_model(args.model_dir / f"epoch-{args.train_epochs}.keras")
    epochs = {"initial_epoch": args.train_epochs, "epochs": args.train_epochs + 1}
    later = resumed.fit(train_dataset, **epochs, shuffle=False, verbose=0)
    if tnt.is_master_rank():
        for epoch, (loss, val_acc) in enumerate(zip(history.history["loss"], history.history["val_acc"], strict=True)):
            print(f"epoch {epoch + 1}: loss {loss:.4f}, val_acc {val_acc:.4f}")
        print(f"epoch {args.train_epochs + 1}, resumed: loss {later.history['loss'][0]:.4f}")


if __name__ == "__main__":
    main()
