"""What several ranks do not run on JAX yet raises NotImplementedError, on every rank, and the ranks can go on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import tarantella as tnt
import tarantella.keras.callbacks

x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


class OwnStep(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, state: Any, data: Any) -> Any:
        return super().train_step(state, data)


def of(*layers: Any) -> Any:
    return compiled(keras.Sequential([*layers, keras.layers.Dense(1)]))


def compiled(keras_model: Any) -> Any:
    model = tnt.Model(keras_model)
    model.compile(keras.optimizers.SGD(), "mse")
    return model


def own_step() -> Any:
    keras_model = OwnStep()
    keras_model(x)
    return compiled(keras_model)


def in_a_loop() -> None:
    variable = keras.Variable(np.ones(2, "float32"))
    tnt.distributed_optimizer(keras.optimizers.SGD()).apply([np.ones(2, "float32")], [variable])


flat = keras.Input((4,))
missing: dict[str, Callable[[], Any]] = {
    "an unbuilt model": lambda: of().fit(x, y, verbose=0),
    "a generator": lambda: of(flat).fit(((x, y) for _ in range(2)), verbose=0),
    "train_on_batch": lambda: of(flat).train_on_batch(x, y),
    "a custom step": lambda: own_step().fit(x, y, verbose=0),
    "data of each rank": lambda: of(flat).fit(x, y, verbose=0, tnt_distribute_dataset=False),
    "Snapshot": lambda: of(flat).fit(x, y, verbose=0, callbacks=[tarantella.keras.callbacks.Snapshot(every=1)]),
    "a loop": in_a_loop,
}
for name, run in missing.items():
    try:
        run()
    except NotImplementedError as error:
        print(f"{name}: {error}", file=sys.stderr)
    else:
        print(name)
of(flat).fit(x, y, verbose=0)
