"""Horovod's reduction of gradients, for optimizers and tapes, and the sum of several backward passes before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from .._backend import backend
from .process import ProcessSet
from .reductions import Average, Compression, Sum, chosen


class LocalVariables:
    """Variables whose gradients are not reduced, or which are not broadcast."""

    def __init__(self) -> None:
        self._variables: list[Any] = []

    def add(self, variable: Any) -> None:
        """Adds a variable of Keras or TensorFlow. Raises TypeError for anything else."""
        if not isinstance(variable, (tf.Variable, keras.Variable)):
            raise TypeError(f"a local variable must be a variable (got {type(variable).__name__})")
        self._variables.append(of_tensorflow(variable))

    def __contains__(self, variable: Any) -> bool:
        plain = of_tensorflow(variable)
        return any(plain is each for each in self._variables)


def of_tensorflow(variable: Any) -> Any:
    """The TensorFlow variable of a Keras variable; any other object as it is."""
    return variable.value if hasattr(variable, "path") else variable


@dataclass(eq=False)
class Reduction:
    """Reduces gradients with the options of an optimizer or a tape. Raises TypeError or ValueError for wrong ones."""

    op: Any
    compression: Any
    sparse_as_dense: bool
    predivide: float
    process_set: ProcessSet
    scale_local: bool  # whether gradients of `local`, which are not reduced, are divided by the number of ranks
    local: LocalVariables = field(default_factory=LocalVariables, init=False)

    def __post_init__(self) -> None:
        self.op = chosen(self.op, among=(Average, Sum))
        if not hasattr(self.compression, "compress") or not hasattr(self.compression, "decompress"):
            raise TypeError(f"compression must be hvd.Compression.none, fp16 or bf16 (got {self.compression!r})")
        if not isinstance(self.process_set, ProcessSet):
            raise TypeError(f"process_set must be what hvd.add_process_set returns (got {self.process_set!r})")
        if not self.predivide > 0:
            raise ValueError(f"gradient_predivide_factor must be above 0 (got {self.predivide!r})")
        if self.predivide != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor needs op=hvd.Average")
        self.process_set.group()

    def reduce(self, owner: Any, gradients: list[Any], variables: list[Any], alias_outputs: bool = False) -> list[Any]:
        """Returns the reduced gradients; unchanged ones on a rank outside the process set. Collective within it.

        `owner` and `alias_outputs` are those of `Backend.allreduce`.
        """
        if not self.process_set.included() or self.process_set.size() == 1:
            return gradients
        group = self.process_set.group()
        result, shared = list(gradients), []
        for i, variable in enumerate(variables):
            if self.sparse_as_dense and isinstance(result[i], tf.IndexedSlices):
                result[i] = tf.convert_to_tensor(result[i])
            if variable not in self.local and result[i] is not None:
                shared.append(i)
            elif variable in self.local and self.scale_local:
                result[i] = _times(result[i], 1 / group.size)
        before, after = 1.0, 1.0
        if self.op == Average:
            before, after = 1 / self.predivide, self.predivide / group.size
        # 16-bit floats do not overflow if the whole factor comes before the sum. A factor of the user is kept as it is.
        if self.predivide == 1.0:
            before, after = after, before
        sent, contexts = [], {}
        for i in shared:
            gradient = _times(result[i], before)
            if not isinstance(gradient, tf.IndexedSlices):
                gradient, contexts[i] = self.compression.compress(gradient)
            sent.append(gradient)
        alias_outputs = alias_outputs and self.compression is Compression.none
        reduced = backend.allreduce(owner, sent, [variables[i] for i in shared], 1.0, alias_outputs, group)
        for i, gradient in zip(shared, reduced, strict=True):
            whole = self.compression.decompress(gradient, contexts[i]) if i in contexts else gradient
            result[i] = _times(whole, after)
        return result


def _times(gradient: Any, factor: float) -> Any:
    return gradient if gradient is None or factor == 1.0 else tf.math.scalar_mul(factor, gradient)


class BackwardPasses:
    """Adds up gradients and applies the total every `count` passes."""

    def __init__(self, count: int, average: bool, sparse_as_dense: bool) -> None:
        self._count, self._average, self._dense = count, average, sparse_as_dense
        self._sums: list[Any] = []
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
        if self._passes is None:
            with tf.init_scope():  # outside of any trace
                self._passes = tf.Variable(0, trainable=False, dtype=tf.int32)
                self._sums = [
                    None if gradient is None else tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False)
                    for gradient, variable in zip(gradients, variables, strict=True)
                ]
        for total, gradient in zip(self._sums, gradients, strict=True):
            if total is not None:
                total.assign_add(tf.convert_to_tensor(gradient))
        done = self._passes.assign_add(1)

        def complete() -> tf.Tensor:
            factor = self._count if self._average else 1
            apply([total if total is None else total.read_value() / factor for total in self._sums])
            for total in self._sums:
                if total is not None:
                    total.assign(tf.zeros_like(total))
            self._passes.assign(0)
            return tf.constant(0)

        def skip() -> tf.Tensor:
            optimizer.iterations.assign_add(1)
            return tf.constant(0)

        tf.cond(done == self._count, complete, skip)
