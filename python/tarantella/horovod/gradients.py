"""Horovod's reduction of gradients, for optimizers and tapes, and the sum of several backward passes before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .._backend import backend
from .process import ProcessSet
from .reductions import Average, Compression, ReduceOp


class LocalVariables:
    """The variables whose gradients are not reduced."""

    def __init__(self, scaled: bool) -> None:
        """`scaled`: whether their gradients are divided by the number of ranks."""
        self.scaled = scaled
        self._variables: list[Any] = []

    def add(self, variable: Any) -> None:
        """Excludes a variable of Keras or TensorFlow from the reduction. Raises TypeError for anything else."""
        if not isinstance(variable, tf.Variable) and not hasattr(variable, "path"):
            raise TypeError(f"a local variable must be a variable (got {type(variable).__name__})")
        self._variables.append(of_tensorflow(variable))

    def __contains__(self, variable: Any) -> bool:
        plain = of_tensorflow(variable)
        return any(plain is each for each in self._variables)


def of_tensorflow(variable: Any) -> Any:
    """The TensorFlow variable of a Keras variable; any other object as it is."""
    return variable.value if hasattr(variable, "path") else variable


class Reduction:
    """Reduces gradients with the options of an optimizer or a tape."""

    def __init__(
        self,
        op: ReduceOp,
        compression: Any,
        sparse_as_dense: bool,
        predivide: float,
        process_set: ProcessSet,
        local: LocalVariables,
    ) -> None:
        """Checks the arguments.

        Raises TypeError if `compression` or `process_set` has another type; ValueError if the set is not part of the
        job, and if `predivide` is not above 0, or not 1 without an average.
        """
        if not hasattr(compression, "compress") or not hasattr(compression, "decompress"):
            raise TypeError(f"compression must be hvd.Compression.none, fp16 or bf16 (got {compression!r})")
        if not isinstance(process_set, ProcessSet):
            raise TypeError(f"process_set must be what hvd.add_process_set returns (got {process_set!r})")
        if not predivide > 0:
            raise ValueError(f"gradient_predivide_factor must be above 0 (got {predivide!r})")
        if predivide != 1.0 and op != Average:
            raise ValueError("gradient_predivide_factor needs op=hvd.Average")
        process_set.group()
        self._op, self._compression, self._dense = op, compression, sparse_as_dense
        self._predivide, self._process_set, self.local = predivide, process_set, local

    def reduce(self, owner: Any, gradients: list[Any], variables: list[Any], alias_outputs: bool = False) -> list[Any]:
        """Returns the reduced gradients; unchanged ones on a rank outside the process set. Collective within it.

        `owner` and `alias_outputs` are those of `Backend.allreduce`.
        """
        if not self._process_set.included() or self._process_set.size() == 1:
            return gradients
        group = self._process_set.group()
        result = [_dense(g) if self._dense else g for g in gradients]
        shared = [i for i, v in enumerate(variables) if v not in self.local and gradients[i] is not None]
        for i in (i for i, v in enumerate(variables) if v in self.local and self.local.scaled):
            result[i] = _times(result[i], 1 / group.size)
        before, after = 1.0, 1.0
        if self._op == Average:
            before, after = 1 / self._predivide, self._predivide / group.size
        # 16-bit floats do not overflow if the whole factor comes before the sum. A factor of the user is kept as it is.
        if self._predivide == 1.0:
            before, after = after, before
        sent, contexts = [], {}
        for i in shared:
            gradient = _times(result[i], before)
            if not isinstance(gradient, tf.IndexedSlices):
                gradient, contexts[i] = self._compression.compress(gradient)
            sent.append(gradient)
        alias_outputs = alias_outputs and self._compression is Compression.none
        reduced = backend.allreduce(owner, sent, [variables[i] for i in shared], 1.0, alias_outputs, group)
        for i, gradient in zip(shared, reduced, strict=True):
            whole = self._compression.decompress(gradient, contexts[i]) if i in contexts else gradient
            result[i] = _times(whole, after)
        return result


def _dense(gradient: Any) -> Any:
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


def _times(gradient: Any, factor: float) -> Any:
    if gradient is None or factor == 1.0:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(factor, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


class BackwardPasses:
    """Adds up gradients and applies the total every `count` passes."""

    def __init__(self, count: int, average: bool, sparse_as_dense: bool) -> None:
        self._count, self._average, self._dense = count, average, sparse_as_dense
        self._sums: list[Any] | None = None
        self._passes: Any = None

    def add(
        self, optimizer: Any, gradients: list[Any], variables: list[Any], apply: Callable[[list[Any]], Any]
    ) -> None:
        """Adds one pass. Passes that apply nothing count as iterations of the optimizer. A gradient None stays None.

        Raises ValueError for a sparse gradient, except with `sparse_as_dense`.
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

        def skip() -> tf.Tensor:
            optimizer.iterations.assign_add(1)
            return tf.constant(0)

        tf.cond(done == self._count, complete, skip)

    def _prepare(self, gradients: list[Any], variables: list[Any]) -> None:
        """Creates the variables for the sums in the first pass, outside of any trace."""
        if self._sums is not None:
            return
        with tf.init_scope():
            self._passes = tf.Variable(0, trainable=False, dtype=tf.int32)
            self._sums = [
                None if gradient is None else tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False)
                for gradient, variable in zip(gradients, variables, strict=True)
            ]
