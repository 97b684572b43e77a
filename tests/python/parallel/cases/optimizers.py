"""Every optimizer of Keras, passed in every way, with every option."""

from __future__ import annotations

from typing import Any

import keras
from common import FEATURES, Wrap, case, compiled, data, full, mlp, trained

# All that this Keras has. Wrappers around others have cases of their own.
KINDS = (
    "SGD",
    "RMSprop",
    "Adam",
    "AdamW",
    "Adadelta",
    "Adagrad",
    "Adamax",
    "Adafactor",
    "Nadam",
    "Ftrl",
    "Lion",
    "Lamb",
    "Muon",
)


def short(wrap: Wrap, optimizer: Any, **options: Any) -> Any:
    """Only a few steps, one of them on a short batch: Lion and Muon amplify rounding."""
    x, y = data(19)
    model = compiled(wrap(mlp()), optimizer, **options)
    return trained(model, model.fit(x, y, batch_size=8, verbose=0))


def each(wrap: Wrap, kinds: tuple[str, ...], **options: Any) -> Any:
    found = [getattr(keras.optimizers, kind) for kind in kinds if hasattr(keras.optimizers, kind)]
    return {kind.__name__: short(wrap, kind(**options)) for kind in found}


@full
@case
def objects_of_the_first_half(wrap: Wrap) -> Any:
    return each(wrap, KINDS[:7], learning_rate=0.02)


@full
@case
def objects_of_the_second_half(wrap: Wrap) -> Any:
    return each(wrap, KINDS[7:], learning_rate=0.02)


@full
@case
def names_and_configs(wrap: Wrap) -> Any:
    config = {"class_name": "Adam", "config": {"learning_rate": 0.02, "beta_1": 0.8}}
    stored = keras.optimizers.serialize(keras.optimizers.Nadam(0.02, clipnorm=0.1))
    return [short(wrap, optimizer) for optimizer in ("rmsprop", config, stored)]


@full
@case
def options_of_sgd(wrap: Wrap) -> Any:
    options = [
        {"momentum": 0.9, "nesterov": True},
        {"clipnorm": 0.05},
        {"global_clipnorm": 0.05},
        {"clipvalue": 0.01},
        {"weight_decay": 0.1},
    ]
    return [short(wrap, keras.optimizers.SGD(0.1, **each)) for each in options]


@full
@case
def options_of_adam(wrap: Wrap) -> Any:
    options = [
        {"amsgrad": True, "weight_decay": 0.1, "global_clipnorm": 0.05},
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
        {"gradient_accumulation_steps": 2, "clipnorm": 0.05},
    ]
    return [short(wrap, keras.optimizers.Adam(0.02, **each)) for each in options]


@case
def schedules(wrap: Wrap) -> Any:
    kinds = keras.optimizers.schedules
    every = [
        kinds.ExponentialDecay(0.1, 2, 0.5),
        kinds.PiecewiseConstantDecay([1, 2], [0.1, 0.05, 0.01]),
        kinds.CosineDecay(0.01, 3, warmup_target=0.1, warmup_steps=1),
    ]
    return [short(wrap, keras.optimizers.SGD(each)) for each in every]


@full
@case
def frozen_unfrozen_and_recompiled(wrap: Wrap) -> Any:
    x, y = data()
    inner = mlp()
    model = wrap(inner)
    seen = []
    for trains in (False, True, False):
        inner.layers[0].trainable = trains
        compiled(model, keras.optimizers.Adam(0.02))
        seen.append(trained(model, model.fit(x, y, batch_size=7, verbose=0)))
    return seen


@case
def constrained(wrap: Wrap) -> Any:
    net = [
        keras.layers.Dense(8, activation="tanh", kernel_constraint=keras.constraints.MaxNorm(0.5)),
        keras.layers.Dense(3, kernel_constraint="non_neg"),
    ]
    x, y = data()
    model = compiled(wrap(keras.Sequential([keras.Input((FEATURES,)), *net])))
    return trained(model, model.fit(x, y, batch_size=8, verbose=0))


@case
def loss_scaled_with_options(wrap: Wrap) -> Any:
    inner = keras.optimizers.Adam(0.02, gradient_accumulation_steps=2, global_clipnorm=0.05)
    return short(wrap, keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**10, dynamic_growth_steps=2))


@case
def schedule_free(wrap: Wrap) -> Any:
    """Its state starts from the weights, except in plain Keras if the first step builds it."""
    kind = getattr(keras.optimizers, "ScheduleFreeAdamW", keras.optimizers.AdamW)
    inner, optimizer = mlp(), kind(0.02)
    optimizer.build(inner.trainable_variables)
    x, y = data(19)
    model = compiled(wrap(inner), optimizer)
    return trained(model, model.fit(x, y, batch_size=8, verbose=0))
