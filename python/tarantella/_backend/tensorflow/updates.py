"""Updates of optimizers by TensorFlow's own operations, each of which does what Keras composes of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from . import xla

_FLOATS = (tf.float32, tf.float64)
_ELEMENTS = range(1, 2**31)  # of a variable: kernels count in 32 bits
# How far what Adam's kernel takes for 1 - beta may be off. A wrong first moment would be a wrong update.
_OFF = (2e-6, 2e-5)


def can_update(gradient: Any, variables: Sequence[Any], learning_rate: Any) -> bool:
    if xla.compiled() or not isinstance(gradient, tf.Tensor):
        return False
    if not all(isinstance(each, tf.Variable) and "GPU" not in each.device for each in variables):
        return False
    dtypes, shapes = {each.dtype for each in variables}, [each.shape for each in variables]
    return (
        len(dtypes) == 1
        and dtypes.issubset(_FLOATS)
        and shapes[0].num_elements() in _ELEMENTS
        and all(shape == gradient.shape for shape in shapes)
        and tf.convert_to_tensor(learning_rate).shape.rank == 0
    )


def update_sgd(
    variable: Any,
    gradient: Any,
    learning_rate: Any,
    kept: Sequence[Any],
    momentum: float,
    nesterov: bool,
    shared: dict[Any, Any],
) -> None:
    dtype = variable.dtype
    rate = _once(shared, (dtype, "rate"), lambda: tf.cast(learning_rate, dtype))
    gradient = tf.cast(gradient, dtype)
    if not kept:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
        return
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=variable.handle,
        accum=kept[0].handle,
        lr=rate,
        grad=gradient,
        momentum=tf.cast(momentum, dtype),
        use_nesterov=nesterov,
    )


def update_adam(
    variable: Any,
    gradient: Any,
    learning_rate: Any,
    kept: Sequence[Any],
    step: Callable[[], Any],
    betas: tuple[float, float],
    epsilon: float,
    shared: dict[Any, Any],
) -> bool:
    dtype = variable.dtype
    # The kernel subtracts betas from 1 after they are rounded to dtype, Keras before. So its moments are `parts` of
    # Keras's. `factor` makes up for the second one's.
    parts = [float(1 - dtype.as_numpy_dtype(beta)) / (1 - beta) for beta in betas]
    if any(abs(part - 1) > most for part, most in zip(parts, _OFF, strict=True)):
        return False
    factor = np.sqrt(parts[1])

    def powers() -> list[Any]:
        """As Keras, of betas that are rounded to float32 first, whatever dtype is."""
        exponent = tf.cast(step(), dtype)
        return [tf.pow(tf.cast(beta, dtype), exponent) for beta in betas]

    beta1_power, beta2_power = _once(shared, (dtype, "powers"), powers)
    rate = _once(shared, (dtype, "rate"), lambda: tf.cast(learning_rate, dtype) * tf.constant(factor, dtype))
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=kept[0].handle,
        v=kept[1].handle,
        beta1_power=beta1_power,
        beta2_power=beta2_power,
        lr=rate,
        beta1=tf.constant(betas[0], dtype),
        beta2=tf.constant(betas[1], dtype),
        epsilon=tf.constant(epsilon * factor, dtype),
        grad=tf.cast(gradient, dtype),
    )
    return True


def _once(shared: dict[Any, Any], what: Any, make: Callable[[], Any]) -> Any:
    """What `make` returns, made once in each graph."""
    key = (tf.compat.v1.get_default_graph(), what)
    if key not in shared:
        shared[key] = make()
    return shared[key]
