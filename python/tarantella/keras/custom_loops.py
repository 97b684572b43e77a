"""Functions for user-defined training loops: equal starts and reduced gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import tree

from .. import _exchange
from .._backend import backend
from .._exchange import described
from .._job import runtime
from .._job.groups import Group
from . import files, hooks, model_state, replicas
from .step import gradients as gradients_of_step
from .step.step import current_step


def distributed_optimizer(optimizer: Any, op: str = "average") -> Any:
    """Makes `apply` and `apply_gradients` of a Keras optimizer reduce the gradients over all ranks first.

    For loops with a GradientTape, in a tf.function or eager; `tarantella.Model` needs no such call. Unscaling,
    accumulation, clipping and moving averages see the reduced gradients. A WARNING says if the first gradients of all
    ranks are equal: then all of them train on the same rows.

    All ranks must apply gradients of the same variables equally often; each application waits for all ranks. With
    one rank nothing changes.

    Args:
        optimizer: A Keras optimizer.
        op: `"sum"`: multiply each rank's loss by its share of the rows of the batch, which
            `tarantella.data.distribute(dataset)` gives. That is right for means over rows, and for regularizers; do not
            multiply terms that are sums over rows. `"average"`: every rank counts alike. That is right where each
            rank's loss is the mean over its rows, and all ranks have equally many.

    Returns:
        The same object, which is saved as before.

    Raises:
        TypeError: It is no Keras optimizer.
        ValueError: There is no such `op`.
        NotImplementedError: On several ranks, this Keras lacks names that they need.

    Example:
        >>> import keras, tarantella as tnt
        >>> optimizer = tnt.distributed_optimizer(keras.optimizers.Adam(), op="sum")
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"distributed_optimizer needs a keras.optimizers.Optimizer (got {type(optimizer).__name__})")
    _check_op(op)
    if runtime.get_size() > 1:
        hooks.check_keras()
        files.hook_checkpoints()
        gradients_of_step.hook_optimizer(optimizer)
        factor = 1 / runtime.get_size() if op == "average" else 1.0
        model_state.loops[optimizer] = functools.partial(gradients_of_step.reduce_and_apply, factor)
    return optimizer


def _check_op(op: str) -> None:
    if op not in ("average", "sum"):
        raise ValueError(f"op must be 'average' or 'sum' (got {op!r})")


def reduce_gradients(
    gradients: Sequence[Any],
    variables: Sequence[Any],
    op: str | None = None,
    *,
    group: Group | None = None,
    owner: Any = None,
) -> list[Any]:
    """Reduces the gradients of variables over the ranks of a group: for optimizers that are not Keras's.

    For loops as those of `distributed_optimizer`, in a tf.function or eager; do not use both. All ranks of the group
    must reduce the gradients of the same variables equally often; each reduction waits for all of them. With one rank
    nothing changes.

    In a `train_step` that ranks run together it is for gradients that no tf.GradientTape has summed: those of
    `tf.gradients`, of a jacobian, and those taken in `tarantella.local_gradients()`.

    Args:
        gradients: Tensors, dense or sparse, or None.
        variables: The variables that they belong to, as many.
        op: `"average"` or `"sum"`. The default is `"average"`; in a `train_step` that ranks run together it is the sum
            of each rank's gradients times its share of the batch's rows, and optimizers apply the result as it is.
        group: The ranks that take part; by default all.
        owner: An object that lives as long as the function. Reductions of the same variables in one tf.function need
            different ones; the default lives as long as the first variable.

    Returns:
        As many gradients: None stays None, a sparse gradient gets the slices of all ranks.

    Raises:
        ValueError: There is no such `op`, the lists have different lengths, this rank is not in the group, or a tape
            has summed the gradients already.
    """
    step = current_step()
    if step is not None and op is None and group is None:
        return gradients_of_step.of(step).reduce(list(gradients), list(variables))
    op = op or "average"
    _check_op(op)
    gradients, variables = list(gradients), list(variables)
    if len(gradients) != len(variables):
        raise ValueError(f"there are {len(gradients)} gradients for {len(variables)} variables")
    group = Group() if group is None else group
    if group.context() is None or group.size == 1 or not variables:
        return gradients
    owner = gradients_of_step.owner_of(variables[0]) if owner is None else owner
    return backend.allreduce(owner, gradients, variables, 1 / group.size if op == "average" else 1.0, group=group)


def broadcast_variables(source: Any, root_rank: int = 0, group: Group | None = None) -> None:
    """Gives all ranks of a group the root's values of variables.

    Generators of random numbers get a stream of their own on each rank. Blocks until all ranks of the group have called
    it; with one rank nothing changes. Build models and optimizers before.

    Args:
        source: A model with its optimizers, a layer, an optimizer, or a structure of variables.
        root_rank: The rank of the job whose values are sent.
        group: The ranks that take part; by default all.

    Raises:
        tarantella.MismatchError: The variables of the ranks differ in number, name, shape or type. On all ranks.
        ValueError: `root_rank` is not in the group.

    Example:
        >>> import keras, tarantella as tnt
        >>> tnt.broadcast_variables(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
    """
    variables = variables_of(source)
    send(variables, [described(v) for v in variables], root_rank, Group() if group is None else group)


def variables_of(source: Any) -> list[Any]:
    """The variables of a model and its optimizers, of a layer, of an optimizer, or of a structure."""
    if isinstance(source, keras.Model):
        return replicas.variables(source)
    return list(source.variables) if hasattr(source, "variables") else list(tree.flatten(source))


def send(variables: list[Any], lines: list[str], root_rank: int, group: Group) -> None:
    """As `broadcast_variables`, for a list of variables that are compared by these lines."""
    root = group.to_group_rank(root_rank)
    if group.context() is None or group.size == 1:
        return
    cure = "build the same model and optimizer on every rank"
    _exchange.check_equal("the variables to broadcast", lines, cure, group)
    replicas.broadcast(variables, root, group.context())
