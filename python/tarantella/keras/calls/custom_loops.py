"""What a training loop of the user's own needs: equal starts and reduced gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import tree

from ... import _exchange
from ..._job import runtime
from ..._job.groups import Group
from ..._names import described
from .. import compatibility, files, replicas, training
from ..step import gradients as gradients_of_step
from ..step import loops
from ..step import optimizer as optimizers
from ..step.step import current_step


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
        compatibility.check()
        files.hook_checkpoints()
        optimizers.install(optimizer)
        training.set_loop(optimizer, loops.reduce_with(1 / runtime.get_size() if op == "average" else 1.0))
    return optimizer


def reduce_gradients(
    gradients: Sequence[Any],
    variables: Sequence[Any],
    op: str | None = None,
    *,
    group: Group | None = None,
    owner: Any = None,
) -> list[Any]:
    """The gradients of these variables over the ranks of a group: for optimizers that are not Keras's.

    For loops as those of `distributed_optimizer`, in a tf.function or eager; do not use both. The default `op` is
    "average", and the default group all ranks. None stays None; a sparse gradient gets the slices of all ranks. All
    ranks of the group must reduce the gradients of the same variables equally often; each reduction waits for all of
    them. With one rank nothing changes.

    In a `train_step` that ranks run together it is for gradients that no tf.GradientTape has summed: those of
    `tf.gradients`, of a jacobian, and those taken in `tarantella.local_gradients()`. The default `op` is then the sum
    of each rank's gradients times its share of the batch's rows, and optimizers apply the result as it is.

    Reductions of the same variables in one tf.function need different `owner`s, each an object that lives as long as
    the function; the default lives as long as the first variable.
    Raises ValueError for another `op`, for lists of different lengths, on a rank that is not in the group, and for
    gradients that a tape has summed.
    """
    step = current_step()
    if step is not None and op is None and group is None:
        return gradients_of_step.of(step).reduced(list(gradients), list(variables))
    op = op or "average"
    if op not in ("average", "sum"):
        raise ValueError(f"op must be 'average' or 'sum' (got {op!r})")
    gradients, variables = list(gradients), list(variables)
    if len(gradients) != len(variables):
        raise ValueError(f"there are {len(gradients)} gradients for {len(variables)} variables")
    group = Group() if group is None else group
    if group.context() is None or group.size == 1 or not variables:
        return gradients
    owner = loops.owner_of(variables[0]) if owner is None else owner
    return loops.reduced(owner, gradients, variables, 1 / group.size if op == "average" else 1.0, group)


def broadcast_variables(source: Any, root_rank: int = 0, group: Group | None = None) -> None:
    """Gives all ranks of a group the root's values of a model, a layer, an optimizer, or a structure of variables.

    The default group is all ranks; `root_rank` is a rank of the job. A model brings its optimizers along. Generators
    of random numbers get a stream of their own on each rank. Blocks until all ranks of the group have called it; with
    one rank nothing changes. Build models and optimizers before.
    Raises MismatchError on all ranks where their variables differ in number, name, shape or type; ValueError for a root
    that is not in the group.
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
    _exchange.agree("the variables to broadcast", lines, cure, group)
    replicas.broadcast(variables, root, group.context())
