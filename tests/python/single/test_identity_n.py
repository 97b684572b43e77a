"""TarantellaIdentityN passes tensors on, stands behind sums of several tensors, and is not optimized away."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tensorflow.python.eager import context  # noqa: E402

from tarantella._backend.tensorflow import plans, reduce  # noqa: E402
from tarantella._backend.tensorflow.plans import operations  # noqa: E402


def test_its_outputs_are_its_inputs_of_any_dtype_and_shape() -> None:
    tensors = [tf.constant([[1.0, 2.0]]), tf.constant([3], tf.int64), tf.zeros([0, 4]), tf.constant(2.5, tf.bfloat16)]

    @tf.function(input_signature=[tf.TensorSpec([None, *each.shape[1:]], each.dtype) for each in tensors[:3]])
    def passed(*given: tf.Tensor) -> list[tf.Tensor]:
        return operations().tarantella_identity_n([*given, tensors[3]])

    shapes = [tuple(each.shape) for each in passed.get_concrete_function().outputs]
    assert shapes == [(None, 2), (None,), (None, 4), ()]
    for before, after in zip(tensors, passed(*tensors[:3]), strict=True):
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        assert tf.reduce_all(after == before)


def test_what_follows_it_does_not_write_into_what_came_before() -> None:
    @tf.function
    def added(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        doubled = values * 2.0
        (passed,) = operations().tarantella_identity_n([doubled])
        return tf.exp(passed) + 1.0, doubled

    _, doubled = added(tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(doubled, [2.0, 4.0])


def test_it_stands_behind_the_sums_of_several_tensors() -> None:
    plan = plans.Plan(0, [0, 0, 1], tf.Variable(0, dtype=tf.int64))
    summed = tf.function(lambda *gradients: reduce._sums(plan, list(gradients), alias_outputs=False))
    graph = summed.get_concrete_function(*[tf.TensorSpec([2])] * 3).graph
    identities = [op for op in graph.get_operations() if op.type == "TarantellaIdentityN"]
    assert [[each.op.type for each in op.inputs] for op in identities] == [["TarantellaAllreduce"] * 2]


def test_it_stays_in_the_optimized_graph() -> None:
    @tf.function
    def added(values: tf.Tensor) -> tf.Tensor:
        one, two = operations().tarantella_identity_n([values * 2.0, values * 3.0])
        return one + two

    context.context().enable_run_metadata()
    try:
        np.testing.assert_array_equal(added(tf.constant([1.0])), [5.0])
        run = context.context().export_run_metadata()
    finally:
        context.context().disable_run_metadata()
    graphs = [each.post_optimization_graph for each in run.function_graphs]
    nodes = [
        node
        for graph in graphs
        for nodes in (graph.node, *(f.node_def for f in graph.library.function))
        for node in nodes
    ]
    assert "TarantellaIdentityN" in {node.op for node in nodes}
