"""Gradients of several backward passes, added up on each rank before they are reduced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class BackwardPasses:
    """Adds up gradients, and every `count` passes has the total applied."""

    def __init__(self, count: int, average: bool, sparse_as_dense: bool) -> None:
        self._count, self._average, self._dense = count, average, sparse_as_dense
        self._sums: list[Any] | None = None
        self._passes: Any = None

    def add(
        self, optimizer: Any, gradients: list[Any], variables: list[Any], apply: Callable[[list[Any]], Any]
    ) -> None:
        """Adds one pass; the others count as iterations of the optimizer. None stays None.

        Raises ValueError for a sparse gradient that is not to be made dense.
        """
        if not optimizer.built:
            with tf.init_scope():
                optimizer.build(variables)
        for gradient, variable in zip(gradients, variables, strict=True):
            if isinstance(gradient, tf.IndexedSlices) and not self._dense:
                raise ValueError(
                    f"backward_passes_per_step cannot add up the sparse gradient of {variable.path!r}: pass "
                    "sparse_as_dense=True"
                )
        self._prepare(gradients, variables)
        for total, gradient in zip(self._sums or (), gradients, strict=True):
            if total is not None:
                total.assign_add(tf.convert_to_tensor(gradient))
        done = self._passes.assign_add(1)

        def complete() -> tf.Tensor:
            factor = self._count if self._average else 1
            apply([total if total is None else total.read_value() / factor for total in self._sums or ()])
            for total in self._sums or ():
                if total is not None:
                    total.assign(tf.zeros_like(total))
            self._passes.assign(0)
            return tf.constant(0)

        def go_on() -> tf.Tensor:
            optimizer.iterations.assign_add(1)
            return tf.constant(0)

        tf.cond(done == self._count, complete, go_on)

    def _prepare(self, gradients: list[Any], variables: list[Any]) -> None:
        """Makes the variables for the sums in the first pass, outside of any trace."""
        if self._sums is not None:
            return
        with tf.init_scope():
            self._passes = tf.Variable(0, trainable=False, dtype=tf.int32)
            self._sums = [
                None if gradient is None else tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False)
                for gradient, variable in zip(gradients, variables, strict=True)
            ]
