#!/usr/bin/env python
"""Gives the same data to `tnt.Model.fit` in three ways. The losses are the same, up to rounding.

tarantella -n 2 -- batches.py --batch_size=64
"""

from __future__ import annotations

import argparse
from typing import Any

import keras
import mnist
import tensorflow as tf
from model import SEED, lenet5_model_generator

import tarantella as tnt


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch_size", type=int, default=64, help="global: of all ranks together")
    args = parser.parse_args()
    if args.batch_size < 1 or args.batch_size % tnt.get_size():
        parser.error(f"--batch_size is {args.batch_size}, which is no multiple of the {tnt.get_size()} ranks")
    return args


def train(title: str, train_dataset: tf.data.Dataset, val_dataset: tf.data.Dataset, **options: Any) -> None:
    keras.utils.set_random_seed(SEED)
    model = tnt.Model(lenet5_model_generator())
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
    options |= {"epochs": 1, "shuffle": False, "verbose": 0}  # Keras shuffles no dataset
    history = model.fit(train_dataset, validation_data=val_dataset, **options).history
    if tnt.is_master_rank():
        print(f"{title}: loss {history['loss'][0]:.4f}, val_accuracy {history['val_accuracy'][0]:.4f}")


def main() -> None:
    args = parse_args()
    tnt.init()
    rank, ranks = tnt.get_rank(), tnt.get_size()
    micro_batch_size = args.batch_size // ranks

    _, train_data, test_data = mnist.load()
    samples = len(train_data[0]) // args.batch_size * args.batch_size
    samples_train = tf.data.Dataset.from_tensor_slices(train_data).take(samples)
    samples_val = tf.data.Dataset.from_tensor_slices(test_data)
    val_dataset = samples_val.batch(args.batch_size)

    # 1. Batches of all ranks together. Each rank gets its part of every batch.
    train("global batches", samples_train.batch(args.batch_size), val_dataset)

    # 2. Single samples, and the number of them that a rank gets at a time.
    train("micro batches", samples_train, val_dataset, tnt_micro_batch_size=micro_batch_size)

    # 3. Each rank makes its own batches, of its own samples. It must then get what no other rank gets.
    own = samples_train.shard(ranks, rank).batch(micro_batch_size, drop_remainder=True)
    own_val = samples_val.shard(ranks, rank).batch(micro_batch_size)
    train("own batches", own, own_val, tnt_distribute_dataset=False, tnt_distribute_validation_dataset=False)


if __name__ == "__main__":
    main()
