#!/usr/bin/env python
"""Saves a trained LeNet-5 and loads it again, in every way that `tnt.Model` and `tnt.models` have.

    tarantella -n 2 -- saving.py --model_dir=saved

All ranks run all of it. The master writes the files; when a call returns, every rank can load what it wrote.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import mnist
import numpy as np
import tensorflow as tf
from model import SEED, lenet5_model_generator

import tarantella as tnt


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", type=Path, default="saved", help="folder of the files (default: %(default)s)")
    args = parser.parse_args()
    if args.model_dir.exists() and not args.model_dir.is_dir():
        parser.error(f"--model_dir {args.model_dir} is a file")
    return args


def whole_model(model: tnt.Model, folder: Path) -> dict[str, tnt.Model]:
    """Architecture, weights and the state of the optimizer, in one file."""
    model.save(folder / "lenet5.keras")
    tnt.models.save_model(model, folder / "too.keras")  # takes a keras.Model as well
    return {name: tnt.models.load_model(folder / name) for name in ("lenet5.keras", "too.keras")}


def architecture(model: tnt.Model) -> dict[str, tnt.Model]:
    """Layers and their options, in memory. The weights are new."""
    made = {
        "get_config, from_config": tnt.Model.from_config(model.get_config()),
        "get_config, model_from_config": tnt.models.model_from_config(model.get_config()),
        "to_json": tnt.models.model_from_json(model.to_json()),
        "to_yaml": tnt.models.model_from_yaml(model.to_yaml()),  # needs PyYAML
        "clone_model": tnt.models.clone_model(model),
    }
    for new_model in made.values():
        new_model.set_weights(model.get_weights())
    return made


def weights(model: tnt.Model, folder: Path) -> dict[str, tnt.Model]:
    """The weights alone, in a file."""
    model.save_weights(folder / "lenet5.weights.h5")
    new_model = tnt.Model(lenet5_model_generator())
    new_model.load_weights(folder / "lenet5.weights.h5")
    return {"lenet5.weights.h5": new_model}


def on_all_ranks(model: tnt.Model, folder: Path) -> dict[str, tnt.Model]:
    """A file of each rank, for folders that the ranks do not share."""
    path = folder / f"rank_{tnt.get_rank()}.keras"
    model.save(path, tnt_save_all_ranks=True)
    return {path.name: tnt.models.load_model(path)}


def main() -> None:
    args = parse_args()
    tnt.init()
    keras.utils.set_random_seed(SEED)
    if tnt.is_master_rank():
        args.model_dir.mkdir(parents=True, exist_ok=True)
    tnt.barrier()

    _, (x_train, y_train), (x_test, _) = mnist.load()
    model = tnt.Model(lenet5_model_generator())
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
    model.fit(tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(64), epochs=1, shuffle=False)

    restored = whole_model(model, args.model_dir) | architecture(model)
    restored |= weights(model, args.model_dir) | on_all_ranks(model, args.model_dir)
    expected = model.predict(x_test[:64], verbose=0)
    for name, new_model in restored.items():
        same = np.array_equal(new_model.predict(x_test[:64], verbose=0), expected)
        if tnt.is_master_rank():
            print(f"{name}: {'the same' if same else 'OTHER'} predictions")

    # A loaded model trains on. compile() chooses another optimizer, and is only needed for that.
    history = restored["lenet5.keras"].fit(x_train, y_train, batch_size=64, epochs=1, verbose=0)
    if tnt.is_master_rank():
        print(f"loss {history.history['loss'][0]:.4f} in the epoch after loading")


if __name__ == "__main__":
    main()
