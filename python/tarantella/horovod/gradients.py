"""The reduction of gradients that an optimizer or a tape was given: Horovod's, over that of the core."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..keras.step import gradients as gradients_of_step
from .process_sets import ProcessSet
from .reductions import Average, Compression, ReduceOp


class LocalVariables:
    """The variables whose gradients stay this rank's."""

    def __init__(self, scaled: bool) -> None:
        """`scaled`: their gradients are divided by the number of ranks."""
        self.scaled = scaled
        self._variables: list[Any] = []

    def add(self, variable: Any) -> None:
        """Excludes a variable of Keras or TensorFlow from the reduction. Raises TypeError for anything else."""
        if not isinstance(variable, tf.Variable) and not hasattr(variable, "path"):
            raise TypeError(f"a local variable must be a variable (got {type(variable).__name__})")
        self._variables.append(_of_tensorflow(variable))

    def __contains__(self, variable: Any) -> bool:
        plain = _of_tensorflow(variable)
        return any(plain is each for each in self._variables)


def _of_tensorflow(variable: Any) -> Any:
    """The TensorFlow variable of one of Keras, any other as it is."""
    return variable.value if hasattr(variable, "path") else variable


class Reduction:
    """How gradients are reduced."""

    def __init__(
        self,
        op: ReduceOp,
        compression: Any,
        sparse_as_dense: bool,
        predivide: float,
        process_set: ProcessSet,
        local: LocalVariables,
    ) -> None:
        """Raises TypeError for what is no compression or process set; ValueError for a set that is not part of the job,
        a `predivide` that is not above 0, and one without an average.
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
        """The reduced gradients; as they are on a rank outside the process set. Collective within it.

        `owner` and `alias_outputs` are those of `gradients.reduced`.
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
        # Halves keep their range if all of the factor comes before the sum; a user-defined factor says otherwise.
        if self._predivide == 1.0:
            before, after = after, before
        sent, contexts = [], {}
        for i in shared:
            gradient = _times(result[i], before)
            if not isinstance(gradient, tf.IndexedSlices):
                gradient, contexts[i] = self._compression.compress(gradient)
            sent.append(gradient)
        alias_outputs = alias_outputs and self._compression is Compression.none
        reduced = gradients_of_step.reduced(owner, sent, [variables[i] for i in shared], 1.0, group, alias_outputs)
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
