"""Running a model once beside training: no graph is kept of it, and TensorFlow's state is as before."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager_context
from tensorflow.python.ops import stateful_random_ops

# TensorFlow keeps the kernels of eager random operations, and their state, by seed: not those of the user's seed.
_SEED = 0x7A2A27E11A


@contextlib.contextmanager
def functions_eager() -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextlib.contextmanager
def state_kept(layers: Sequence[Any]) -> Iterator[None]:
    """The variables are those, and those of generators, that layers hold as attributes, in lists or in modules."""
    context = eager_context.context()
    seeds = {name: vars(context)[name] for name in ("_seed", "_rng") if name in vars(context)}
    shared = stateful_random_ops.global_generator
    variables = [each for each in variables_outside(layers) if each.is_initialized()]
    variables += [shared.state] if shared is not None else []
    values = [variable.read_value() for variable in variables]
    context._seed, context._rng = _SEED, random.Random(_SEED)
    try:
        yield
    finally:
        del context._seed, context._rng  # which TensorFlow lacks before the first seed
        vars(context).update(seeds)
        stateful_random_ops.global_generator = shared
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


def variables_outside(layers: Sequence[Any]) -> list[tf.Variable]:
    found: dict[int, tf.Variable] = {}
    for layer in layers:
        for leaf in _leaves(list(vars(layer).values())):
            if isinstance(leaf, tf.Module):
                found.update((id(each), each) for each in leaf.variables)
            elif isinstance(leaf, tf.Variable | tf.random.Generator):
                variable = getattr(leaf, "state", leaf)
                found[id(variable)] = variable
    return list(found.values())


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value
