#!/usr/bin/env python
"""LeNet-5 on handwritten digits. `tnt.init()` and `tnt.Model` make it train on several ranks.

    tarantella -n 2 -- model.py --batch_size=64 --learning_rate=0.01

Without the launcher the same script is plain Keras on one process. With TNT_TENSORBOARD_ON_ALL_DEVICES=true and
--model_dir, every rank writes logs for TensorBoard.
"""

from __future__ import annotations

import argparse
import json
import time

import keras
import mnist
import tensorflow as tf

import tarantella as tnt

SEED = 42


def lenet5_model_generator() -> keras.Model:
    """Returns LeNet-5 for images of 28x28, with 61,706 parameters."""
    inputs = keras.Input(shape=(28, 28, 1))
    x = keras.layers.Conv2D(6, 5, padding="same", activation="relu")(inputs)
    x = keras.layers.MaxPool2D()(x)
    x = keras.layers.Conv2D(16, 5, activation="relu")(x)
    x = keras.layers.MaxPool2D()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(120, activation="relu")(x)
    x = keras.layers.Dense(84, activation="relu")(x)
    outputs = keras.layers.Dense(10, activation="softmax")(x)
    return keras.Model(inputs, outputs, name="lenet5")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch_size", type=int, default=64, help="global: of all ranks together")
    parser.add_argument("--learning_rate", type=float, default=0.002)
    parser.add_argument("--train_epochs", "--epochs", type=int, help="default: 3 for MNIST, 30 for the digits")
    parser.add_argument("--model_dir", metavar="DIR", help="where TensorBoard's logs are written")
    parser.add_argument("--json", metavar="FILE", help="where the master writes accuracy and samples/s")
    args = parser.parse_args()
    if args.batch_size < 1:
        parser.error(f"--batch_size is {args.batch_size}, but a batch has at least one sample")
    if args.train_epochs is not None and args.train_epochs < 1:
        parser.error(f"--train_epochs is {args.train_epochs}, but training takes at least one")
    return args


def main() -> None:
    args = parse_args()
    tnt.init()
    keras.utils.set_random_seed(SEED)

    name, (x_train, y_train), (x_test, y_test) = mnist.load()
    ranks = f"{tnt.get_size()} rank{'s' if tnt.get_size() > 1 else ''}"
    if tnt.is_master_rank():
        print(f"{name}: {len(x_train)} samples on {ranks}, {args.batch_size} in each global batch", flush=True)
    epochs = args.train_epochs or (3 if name == "MNIST" else 30)
    train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    train_dataset = train_dataset.shuffle(len(x_train), seed=SEED).batch(args.batch_size)
    test_dataset = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(args.batch_size)

    model = tnt.Model(lenet5_model_generator())
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=args.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )

    # The first epoch also builds the graph, so the speed is measured over the later ones.
    times = [time.perf_counter()]
    clock = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: times.append(time.perf_counter()))
    callbacks = [clock]
    if args.model_dir:
        callbacks.append(keras.callbacks.TensorBoard(log_dir=args.model_dir))
    model.fit(train_dataset, epochs=epochs, shuffle=False, callbacks=callbacks)  # the dataset shuffles
    loss, accuracy = model.evaluate(test_dataset, verbose=0)

    if tnt.is_master_rank():
        timed = times[1:] if epochs > 1 else times
        speed = len(x_train) * (len(timed) - 1) / (timed[-1] - timed[0])
        print(f"{name}, {ranks}: test accuracy {accuracy:.4f}, test loss {loss:.4f}, {speed:,.0f} samples/s")
        if args.json:
            result = {
                "data": name,
                "ranks": tnt.get_size(),
                "accuracy": accuracy,
                "loss": loss,
                "samples_per_second": speed,
                "parameters": model.count_params(),
                "epochs": epochs,
                "batch_size": args.batch_size,
            }
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump(result, file)


if __name__ == "__main__":
    main()
