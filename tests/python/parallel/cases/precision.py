"""Mixed precision. Small whole numbers, halves and quarters keep half precision exact, so results can be equal."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from common import Wrap, case, extended, trained

ROWS, FEATURES = 16, 4


def numbers() -> tuple[Any, Any]:
    random = np.random.default_rng(8)
    return random.integers(-1, 2, (ROWS, FEATURES)).astype("float32"), random.integers(-1, 2, (ROWS, 1)).astype(
        "float32"
    )


def linear(wrap: Wrap, policy: str, **options: Any) -> Any:
    keras.config.set_dtype_policy(policy)
    try:
        layers = [keras.layers.Dense(1, kernel_initializer="zeros"), keras.layers.Activation("linear", dtype="float32")]
        model = wrap(keras.Sequential([keras.Input((FEATURES,)), *layers]))
        model.compile(keras.optimizers.SGD(0.5), "mse", **options)
    finally:
        keras.config.set_dtype_policy(keras.config.floatx())
    return model


def fitted(wrap: Wrap, policy: str, x: Any, y: Any, **options: Any) -> Any:
    model = linear(wrap, policy, **options)
    return trained(model, model.fit(x, y, batch_size=8, shuffle=False, verbose=0))


@case
def half_precision_float32(wrap: Wrap) -> Any:
    return fitted(wrap, "mixed_float16", *numbers())


@extended
@case
def half_precision_eagerly_float32(wrap: Wrap) -> Any:
    return fitted(wrap, "mixed_float16", *numbers(), run_eagerly=True)


@case
def brain_floats_float32(wrap: Wrap) -> Any:
    return fitted(wrap, "mixed_bfloat16", *numbers())


@case
def overflow_of_one_row_float32(wrap: Wrap) -> Any:
    """Rows of one rank alone are too large: no rank may take that step."""
    x, y = numbers()
    x[8] = 2.0**15
    model = linear(wrap, "mixed_float16")
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert model.optimizer.inner_optimizer.iterations == 1  # of two steps
    return {"weights": model.get_weights(), "optimizer": [np.asarray(v) for v in model.optimizer.variables]}
