"""What a training loop of the user's own needs: equal starts and reduced gradients."""

from __future__ import annotations

from typing import Any

import keras
from keras import tree

from ... import _exchange
from ..._job import runtime
from ..._names import described
from .. import replicas
from ..step import optimizer as optimizers
from . import proof


def distributed_optimizer(optimizer: Any, op: str = "average") -> Any:
    """Makes `apply` and `apply_gradients` of a Keras optimizer reduce the gradients over all ranks first.

    For loops with a GradientTape, in a tf.function or eager; `tarantella.Model` needs no such call. Returns the
    same object, which is saved as before. Unscaling, accumulation, clipping and moving averages see the reduced
    gradients.

    Each rank takes its own rows: `tarantella.data.distribute(dataset)` gives them, and their share of the rows of the
    batch. With `op="sum"` multiply the loss by that share: right for means over rows, and for regularizers.
    With `op="average"` every rank counts alike: right where each rank's loss is the mean over its rows, and all
    ranks have equally many. With `op="sum"`, do not multiply terms that are sums over rows. A WARNING says if the first
    gradients of all ranks are equal: then all of them train on the same rows.

    All ranks must apply gradients of the same variables equally often; each application waits for all ranks. With
    one rank nothing changes.
    Raises TypeError for anything but a Keras optimizer, ValueError for another `op`, NotImplementedError on several
    ranks for a Keras whose internals are not as known.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"distributed_optimizer needs a keras.optimizers.Optimizer (got {type(optimizer).__name__})")
    if op not in ("average", "sum"):
        raise ValueError(f"op must be 'average' or 'sum' (got {op!r})")
    if runtime.get_size() > 1:
        proof.once()
        optimizers.install(optimizer)
        optimizers.reduce_in_loops(optimizer, 1 / runtime.get_size() if op == "average" else 1.0)
    return optimizer


def broadcast_variables(source: Any) -> None:
    """Gives all ranks the master's values of a model, a layer, an optimizer, or a structure of variables.

    A model brings its optimizers along. Generators of random numbers get a stream of their own on each rank.
    Blocks until all ranks have called it; with one rank nothing changes. Build models and optimizers before.
    Raises MismatchError on all ranks where their variables differ in number, name, shape or type.
    """
    if runtime.get_size() == 1:
        return
    if isinstance(source, keras.Model):
        variables = replicas.variables(source)
    else:
        variables = list(source.variables) if hasattr(source, "variables") else tree.flatten(source)
    lines = [described(v) for v in variables]
    _exchange.agree("the variables to broadcast", lines, "build the same model and optimizer on every rank")
    replicas.broadcast(variables)
