"""Trains, evaluates, predicts with and saves a tarantella.Model, and compares it with a keras.Model: on one rank equal.

Usage: train_and_save.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tarantella as tnt

x = np.random.default_rng(1).normal(size=(20, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)


def used(wrap: Any, path: Path) -> list[Any]:
    """What the calls of a model return, and its weights, after it is saved and loaded again."""
    keras.utils.set_random_seed(7)
    layers = [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = wrap(keras.Sequential(layers))
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=8, epochs=2, validation_data=(x, y), verbose=0).history
    numbers = [history[name] for name in sorted(history)]
    numbers += [model.evaluate(x, y, batch_size=8, verbose=0), model.train_on_batch(x, y)]
    predicted = model.predict(x, batch_size=8, verbose=0)
    model.save(path)
    loaded = keras.models.load_model(path)
    np.testing.assert_array_equal(loaded.predict(x, batch_size=8, verbose=0), predicted)
    return [*numbers, predicted, *loaded.get_weights()]


def main() -> None:
    folder = Path(sys.argv[1])
    ours, plain = used(tnt.Model, folder / "ours.keras"), used(lambda model: model, folder / "plain.keras")
    assert len(ours) == len(plain)
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    again = tnt.models.load_model(folder / "ours.keras")
    assert isinstance(again, keras.Sequential)
    again.fit(x, y, tnt_micro_batch_size=8, epochs=1, verbose=0)
    assert "tensorflow" not in sys.modules
    print("equal")


main()
