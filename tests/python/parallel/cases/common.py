"""What the cases share. A case is a training that one process and several ranks must do alike.

It takes `wrap` (tarantella.Model on ranks, nothing in plain Keras) and returns what is compared: a
structure of arrays and numbers. Names that end in _float32 are judged to 1e-5, all others to 1e-9.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Wrap = Callable[[Any], Any]
CASES: dict[str, Callable[[Wrap], Any]] = {}

SAMPLES, FEATURES, CLASSES = 37, 5, 3


def case(function: Callable[[Wrap], Any]) -> Callable[[Wrap], Any]:
    CASES[f"{function.__module__}-{function.__name__}"] = function
    return function


def extended(function: Callable[[Wrap], Any]) -> Callable[[Wrap], Any]:
    """Above @case: only in `make test-all` and tools/compatibility.sh, since other cases cover its parts."""
    return function


def full(function: Callable[[Wrap], Any]) -> Callable[[Wrap], Any]:
    """Above @case: in `make test-full`, not in the gate, since it takes long."""
    return function


def run(name: str, wrap: Wrap) -> Any:
    """Runs the case FILE-NAME as if it were the first in its process."""
    keras.backend.clear_session(free_memory=False)  # Python collects the garbage of many cases at once
    keras.config.set_floatx("float32" if name.endswith("_float32") else "float64")
    keras.utils.set_random_seed(7)
    return CASES[name](wrap)


def data(samples: int = SAMPLES) -> tuple[Any, Any]:
    random = np.random.default_rng(samples)
    return random.normal(size=(samples, FEATURES)), random.integers(0, CLASSES, samples)


def mlp(**options: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(8, activation="tanh", **options),
            keras.layers.Dense(CLASSES),
        ]
    )


def compiled(model: Any, optimizer: Any = None, **options: Any) -> Any:
    options.setdefault("loss", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    options.setdefault("metrics", ["accuracy"])
    model.compile(optimizer or keras.optimizers.SGD(0.1, momentum=0.9), **options)
    return model


def trained(model: Any, history: Any) -> dict[str, Any]:
    return {
        "weights": model.get_weights(),
        "optimizer": [np.asarray(v) for v in model.optimizer.variables],
        "history": dict(history.history),
    }


def results(model: Any, history: Any, x: Any, y: Any, batch_size: int = 9, **options: Any) -> dict[str, Any]:
    """Of training, and of evaluate and predict too: each is traced anew, which is what costs here."""
    return {
        **trained(model, history),
        "evaluate": model.evaluate(x, y, batch_size=batch_size, verbose=0, **options),
        "predict": model.predict(x, batch_size=batch_size, verbose=0),
    }


def arrays(wrap: Wrap, optimizer: Any = None, *, batch_size: int = 8, samples: int = SAMPLES, **fit: Any) -> Any:
    x, y = data(samples)
    model = compiled(wrap(mlp()), optimizer)
    fit = {"epochs": 2, "verbose": 0, **fit}
    return trained(model, model.fit(x, y, batch_size=batch_size, **fit))


def pipeline(batch: int, samples: int = SAMPLES, drop: bool = False) -> Any:
    return tf.data.Dataset.from_tensor_slices(data(samples)).batch(batch, drop_remainder=drop)


def dataset(wrap: Wrap, train: Any, **fit: Any) -> Any:
    model = compiled(wrap(mlp()))
    history = model.fit(train, epochs=2, verbose=0, **fit)
    return {
        **trained(model, history),
        "evaluate dataset": model.evaluate(train, verbose=0, return_dict=True),
        "predict dataset": model.predict(train, verbose=0),
    }


def on_ranks() -> bool:
    """Whether this runs on ranks rather than in plain Keras."""
    return "tarantella" in sys.modules


def is_master() -> bool:
    return not on_ranks() or sys.modules["tarantella"].is_master_rank()


def folder(name: str) -> Path:
    """A folder for the files of a case, the same on all ranks."""
    out = Path(sys.argv[1])
    path = out.with_name(f"files-{out.name}") / name
    path.mkdir(parents=True, exist_ok=True)
    return path
