"""TarantellaGate passes tensors on, and TensorFlow does not optimize it away."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tarantella._backend.tensorflow.operations import operations  # noqa: E402


def test_its_outputs_are_its_inputs_of_any_dtype_and_shape() -> None:
    tensors = [tf.constant([[1.0, 2.0]]), tf.constant([3], tf.int64), tf.zeros([0, 4]), tf.constant(2.5, tf.bfloat16)]

    @tf.function(input_signature=[tf.TensorSpec([None, *each.shape[1:]], each.dtype) for each in tensors[:3]])
    def passed(*given: tf.Tensor) -> list[tf.Tensor]:
        return operations().tarantella_gate([*given, tensors[3]])

    shapes = [tuple(each.shape) for each in passed.get_concrete_function().outputs]
    assert shapes == [(None, 2), (None,), (None, 4), ()]
    for before, after in zip(tensors, passed(*tensors[:3]), strict=True):
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        assert tf.reduce_all(after == before)


def test_what_follows_it_does_not_write_into_what_came_before() -> None:
    @tf.function
    def added(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        doubled = values * 2.0
        (passed,) = operations().tarantella_gate([doubled])
        return tf.exp(passed) + 1.0, doubled

    _, doubled = added(tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(doubled, [2.0, 4.0])
