"""Updates of optimizers by TensorFlow's own kernels, which pass over memory once where Keras's operations do often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from . import xla

_FLOATS = (tf.float32, tf.float64)
# How far what Adam's kernel takes for 1 - beta_2 may be off: 1.3e-5 of 0.001 in float32, 1.7e-4 of 0.0001.
_OFF = 2e-5


def can_update(gradient: Any, variables: Sequence[Any]) -> bool:
    if xla.compiled() or not isinstance(gradient, tf.Tensor):
        return False
    if not all(isinstance(each, tf.Variable) for each in variables):
        return False
    dtypes = {each.dtype for each in variables}
    return len(dtypes) == 1 and dtypes.issubset(_FLOATS)


def update_sgd(
    variable: Any, gradient: Any, learning_rate: Any, kept: Sequence[Any], momentum: float, nesterov: bool
) -> bool:
    dtype = variable.dtype
    rate, gradient = tf.cast(learning_rate, dtype), tf.cast(gradient, dtype)
    if not kept:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
    else:
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=kept[0].handle,
            lr=rate,
            grad=gradient,
            momentum=tf.cast(momentum, dtype),
            use_nesterov=nesterov,
        )
    return True


def update_adam(
    variable: Any,
    gradient: Any,
    learning_rate: Any,
    kept: Sequence[Any],
    step: Any,
    betas: tuple[float, float],
    epsilon: float,
) -> bool:
    dtype, step = variable.dtype, tf.cast(step, variable.dtype)
    # The kernel subtracts beta_2 from 1 after both are rounded to dtype, Keras before. So its second moment is
    # `off` times Keras's, and these factors make the update Keras's.
    one_less = 1 - dtype.as_numpy_dtype(betas[1])
    off = float(one_less) / (1 - betas[1])
    if abs(off - 1) > _OFF:
        return False
    kernel = tf.raw_ops.ResourceApplyAdamWithAmsgrad if len(kept) > 2 else tf.raw_ops.ResourceApplyAdam
    # As Keras, it takes the powers of betas that are rounded to float32 first, whatever dtype is.
    powers = [tf.pow(tf.cast(beta, dtype), step) for beta in betas]
    kernel(
        var=variable.handle,
        **{name: each.handle for name, each in zip(("m", "v", "vhat"), kept, strict=False)},
        beta1_power=powers[0],
        beta2_power=powers[1],
        lr=tf.cast(learning_rate, dtype) * tf.constant(np.sqrt(off), dtype),
        beta1=tf.constant(betas[0], dtype),
        beta2=tf.constant(betas[1], dtype),
        epsilon=tf.constant(epsilon * np.sqrt(off), dtype),
        grad=tf.cast(gradient, dtype),
    )
    return True
