"""How a step runs: eagerly, compiled by XLA, several at once; with one or more models and optimizers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from common import Wrap, case, compiled, data, extended, full, mlp, pipeline, results


def clipped() -> Any:
    return keras.optimizers.AdamW(
        0.01, global_clipnorm=0.1, use_ema=True, ema_overwrite_frequency=3, gradient_accumulation_steps=2
    )


def trained_and_used(wrap: Wrap, optimizer: Any = None, batch_size: int = 8, **options: Any) -> Any:
    x, y = data()
    model = compiled(wrap(mlp()), optimizer, **options)
    history = model.fit(x, y, batch_size=batch_size, epochs=2, verbose=0, validation_data=data(10))
    return results(model, history, x, y)


@case
def compiled_by_xla(wrap: Wrap) -> Any:
    return trained_and_used(wrap, keras.optimizers.Adam(0.01), jit_compile=True)


@full
@case
def compiled_by_xla_float32(wrap: Wrap) -> Any:
    return trained_and_used(wrap, keras.optimizers.Adam(0.01), jit_compile=True)


@full
@case
def compiled_by_xla_clipped_accumulated_averaged(wrap: Wrap) -> Any:
    return trained_and_used(wrap, clipped(), jit_compile=True)


@full
@case
def compiled_by_xla_batches_smaller_than_ranks(wrap: Wrap) -> Any:
    model = compiled(wrap(mlp()), jit_compile=True)
    history = model.fit(pipeline(2, 7), epochs=2, verbose=0)
    return results(model, history, *data(7), batch_size=2)


@full
@case
def compiled_by_xla_several_steps_per_execution(wrap: Wrap) -> Any:
    return trained_and_used(wrap, batch_size=6, jit_compile=True, steps_per_execution=2)


@full
@case
def compiled_by_xla_one_gradient(wrap: Wrap) -> Any:
    x, y = data()
    model = wrap(keras.Sequential([keras.Input((x.shape[1],)), keras.layers.Dense(3, use_bias=False)]))
    model = compiled(model, jit_compile=True)
    return results(model, model.fit(x, y, batch_size=8, verbose=0), x, y)


@extended
@case
def compiled_by_xla_loss_scaled(wrap: Wrap) -> Any:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01))
    return trained_and_used(wrap, optimizer, jit_compile=True)


@full
@case
def eager_clipped_accumulated_averaged(wrap: Wrap) -> Any:
    return trained_and_used(wrap, clipped(), run_eagerly=True)


@case
def eager_batches_smaller_than_ranks(wrap: Wrap) -> Any:
    model = compiled(wrap(mlp()), run_eagerly=True)
    return results(model, model.fit(pipeline(2, 7), verbose=0), *data(7), batch_size=2)


def of_numbers(true: Any, predicted: Any) -> Any:
    weights = 1 + (true.numpy() > 0).mean(-1)
    return keras.ops.mean(keras.ops.square(true - predicted), -1) * weights


class Positive(keras.metrics.Metric):
    """Counts in NumPy."""

    def __init__(self) -> None:
        super().__init__(name="positive")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, true: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(float((true.numpy() > 0).sum()))

    def result(self) -> Any:
        return self.total + 0


def eager_numbers_in(wrap: Wrap, samples: int, batch_size: int) -> Any:
    x, _ = data(samples)
    model = wrap(mlp())
    model.compile("sgd", of_numbers, metrics=["mae", keras.metrics.F1Score(), Positive()], run_eagerly=True)
    history = model.fit(x, (x[:, :3] > 0).astype(x.dtype), batch_size=batch_size, epochs=2, verbose=0)
    return results(model, history, x, (x[:, :3] > 0).astype(x.dtype), batch_size=batch_size)


@case
def eager_numbers_in_loss_and_metrics(wrap: Wrap) -> Any:
    return eager_numbers_in(wrap, samples=13, batch_size=4)


@case
def eager_numbers_of_batches_smaller_than_ranks(wrap: Wrap) -> Any:
    """A rank without rows also undoes the updates of its metrics in the step."""
    return eager_numbers_in(wrap, samples=2, batch_size=1)


@full
@case
def compiled_by_xla_with_a_sum_within_the_step(wrap: Wrap) -> Any:
    """A masked loss has an exchange of its own."""
    x, y = data()
    tokens = (np.abs(x[:, :4]) * 3).astype("int64") % 5
    one_hot = np.eye(5)[tokens]
    inputs = keras.Input((4, 5))
    hidden = keras.layers.Masking(0.0)(keras.layers.Dense(6)(inputs))
    model = wrap(keras.Model(inputs, keras.layers.Dense(3)(hidden)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=True)
    labels = np.repeat(y[:, None], 4, axis=1)
    history = model.fit(one_hot, labels, batch_size=8, epochs=2, verbose=0)
    return {"weights": model.get_weights(), "history": dict(history.history)}


@full
@case
def compiled_by_xla_with_several_sums_within_the_step(wrap: Wrap) -> Any:
    """Masked losses and synchronized layers: exchanges of which none depends on another."""
    x, y = data()
    inputs = keras.Input((x.shape[1],))
    branches = []
    for name in ("a", "b"):
        hidden = keras.layers.Dense(6)(inputs)
        hidden = keras.layers.BatchNormalization(synchronized=True)(hidden)
        branches.append(keras.layers.Dense(3, name=name)(hidden))
    model = wrap(keras.Model(inputs, {"a": branches[0], "b": branches[1]}))
    crossentropy = keras.losses.SparseCategoricalCrossentropy
    loss = {name: crossentropy(from_logits=True, ignore_class=i) for i, name in enumerate("ab")}
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=True)
    history = model.fit(x, {"a": y, "b": y}, batch_size=9, epochs=2, verbose=0)
    return {"weights": model.get_weights(), "history": dict(history.history)}


class Counted(keras.Sequential):
    """Wraps the function that runs a step, as users do who want to see each one."""

    def make_train_function(self, force: bool = False) -> Any:
        if self.train_function is not None and not force:
            return self.train_function
        super().make_train_function(force)
        function, self.steps = self.train_function, 0

        def train_function(iterator: Any) -> Any:
            self.steps += 1
            return function(iterator)

        self.train_function = train_function
        return train_function


@case
def own_function_around_a_step(wrap: Wrap) -> Any:
    model = compiled(wrap(Counted(mlp().layers)))
    x, y = data()
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    return [results(model, history, x, y), model.steps]


@full
@case
def data_of_other_types_one_after_the_other(wrap: Wrap) -> Any:
    model, found = compiled(wrap(mlp())), []
    x, y = data()
    weights = np.linspace(0.5, 2, len(x))
    for arrays in ((x, y), (x, y, weights), (x.astype("int32"), y), (x, y)):
        model.fit(*arrays[:2], sample_weight=arrays[2] if arrays[2:] else None, batch_size=8, verbose=0)
        found.append(model.evaluate(*arrays[:2], verbose=0))
        model.fit(pipeline(5, 11), verbose=0)
    return [found, model.get_weights()]
