"""The hooks of `tf.GradientTape`: what a distributed step does with the gradients that tapes take in it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.eager.polymorphic_function import concrete_function, function_context

from . import provenance, slices
from .gradients import StepGradients
from .steps import sandbox_trace_key
from .targets import has_rows, is_of_one_row

_NONE = tf.UnconnectedGradients.NONE
_Method = Callable[..., Any]


def gradient_hooks(find: Callable[[], StepGradients | None]) -> list[tuple[Any, str, Callable[[_Method], _Method]]]:
    local = functools.partial(_for_the_rank_itself, find)
    return [
        (tf.GradientTape, "gradient", functools.partial(_gradient, find)),
        (tf.GradientTape, "jacobian", local),
        (tf.GradientTape, "batch_jacobian", local),
        (function_context, "make_function_context", functools.partial(_function_context, find)),
        (concrete_function.ConcreteFunction, "_call_flat", functools.partial(_call_flat, find)),
    ]


def _function_context(find: Callable[[], StepGradients | None], original: _Method) -> _Method:
    """Adds the step to TensorFlow's key for traces.

    A trace that is made outside of a step sums nothing, and one that is made in another step may sum too much.
    """

    def make_function_context(*args: Any, **kwargs: Any) -> Any:
        made, gradients_of_step = original(*args, **kwargs), find()
        if (key := sandbox_trace_key.get()) is not None:  # what is traced there records or replays rows
            return made._replace(context=(made.context, key))
        if gradients_of_step is None:
            return made
        is_differentiated = record.could_possibly_record()  # by a tape around it: then so are its sums
        return made._replace(context=(made.context, gradients_of_step.trace_cache_key, is_differentiated))

    return make_function_context


# By graph of a function that has been traced: the variables whose gradients it sums.
_sums_of: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()


def _call_flat(find: Callable[[], StepGradients | None], original: _Method) -> _Method:
    """A function that was traced before runs no Python, which would note what it sums."""

    def _call_flat(function: Any, *args: Any, **kwargs: Any) -> Any:
        gradients_of_step = find() if tf.executing_eagerly() else None
        if gradients_of_step is not None:
            if function.graph not in _sums_of:
                _sums_of[function.graph] = provenance.summed_in(function.graph)
            gradients_of_step.note_call(_sums_of[function.graph])
        return original(function, *args, **kwargs)

    return _call_flat


def _for_the_rank_itself(find: Callable[[], StepGradients | None], original: _Method) -> _Method:
    @tf.autograph.experimental.do_not_convert
    def call(*args: Any, **kwargs: Any) -> Any:
        gradients_of_step = find()
        if gradients_of_step is None:
            return original(*args, **kwargs)
        with gradients_of_step.local():
            return original(*args, **kwargs)

    return call


def _gradient(find: Callable[[], StepGradients | None], original: _Method) -> _Method:
    local = _for_the_rank_itself(find, original)

    @tf.autograph.experimental.do_not_convert
    def gradient(
        tape: Any, target: Any, sources: Any, output_gradients: Any = None, unconnected_gradients: Any = _NONE
    ) -> Any:
        # In a backward pass, layers that are computed again take gradients with tapes of their own: those are local.
        take = functools.partial(local, tape, target, sources, unconnected_gradients=unconnected_gradients)
        gradients_of_step, flat = find(), tf.nest.flatten(sources)
        places = [] if gradients_of_step is None else [i for i, v in enumerate(flat) if gradients_of_step.reduces(v)]
        if gradients_of_step is None or not places:
            return take(output_gradients)
        targets = tf.nest.flatten(target)
        upstreams = [None] * len(targets) if output_gradients is None else tf.nest.flatten(output_gradients)
        is_users = not gradients_of_step.is_only_keras_gradient(record.could_possibly_record())
        if is_users and any(map(is_of_one_row, targets)):
            raise NotImplementedError(
                "a tape in train_step takes the gradient of a single row of the batch, and several ranks would sum "
                "those of different rows; take gradients of single rows in `with tarantella.local_gradients():`, and "
                "pass their mean over this rank's rows to the optimizer, or use tf.GradientTape.jacobian"
            )
        # The weight of a target with a value for each row is 1: TensorFlow takes the gradient of the sum.
        weight, rows = gradients_of_step.weight(), gradients_of_step.static_rows
        weights = [None if has_rows(*each, rows) else weight for each in zip(targets, upstreams, strict=True)]
        weighs = any(weight is not None for weight in weights)
        # Where all sources are variables, the backward pass starts from the weight: nothing is multiplied.
        starts = weighs and (len(places) == len(flat) or any(weight is None for weight in weights))
        starts = starts and all(isinstance(each, (tf.Tensor, tf.Variable)) for each in targets)
        if starts:
            output_gradients = [_output_gradient(*each) for each in zip(targets, weights, upstreams, strict=True)]
        gradients = tf.nest.flatten(take(output_gradients))
        own = [gradients[i] for i in places]
        if weighs and not starts:
            own = [slices.scaled(each, functools.partial(tf.cast, weight)) for each in own]
        sums = gradients_of_step.sums(own, [flat[i] for i in places], differentiable=record.could_possibly_record())
        for i, each in zip(places, sums, strict=True):
            gradients[i] = each
        return tf.nest.pack_sequence_as(sources, gradients)

    return gradient


def _output_gradient(target: Any, weight: Any, given: Any) -> Any:
    """What the backward pass starts from; it takes no None beside others."""
    dtype = tf.as_dtype(target.dtype)
    if weight is None or not (dtype.is_floating or dtype.is_complex):
        return tf.ones_like(target) if given is None else given
    weight = tf.cast(weight, dtype)
    if given is not None:
        return weight * tf.cast(given, dtype)
    return weight if target.shape.rank == 0 else tf.fill(tf.shape(target), weight)


@tf.RegisterGradient("TarantellaIdentityN")
def _as_it_is(op: Any, *upstreams: Any) -> Any:
    return upstreams


@tf.RegisterGradient("TarantellaAllreduce")
def _no_gradient(op: Any, *upstreams: Any) -> Any:
    raise NotImplementedError(
        "tf.autodiff.ForwardAccumulator and tf.gradients do not see through gradients that a tape in train_step has "
        "summed over the ranks; take the gradient of the gradient with a second tape around the first"
    )
