"""`DistributedOptimizer`: a Keras optimizer that reduces the gradients of all ranks before it applies them."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras

from .._job import runtime
from ..keras import hooks, training
from ..keras.step.gradients import hook_optimizer, keeps_no_gradient
from . import process
from .backward_passes import BackwardPasses
from .gradients import LocalVariables, Reduction
from .process_sets import ProcessSet, global_process_set
from .reductions import Average, Compression, Sum, chosen

# By optimizer that was wrapped: what it does with gradients.
_wrapped: weakref.WeakKeyDictionary[Any, Wrapped] = weakref.WeakKeyDictionary()


class Wrapped:
    """What a wrapped optimizer does with gradients, in the place of applying this rank's."""

    def __init__(self, reduction: Reduction, passes: BackwardPasses | None) -> None:
        self.reduction, self.passes = reduction, passes

    def __call__(
        self, optimizer: Any, gradients: list[Any], variables: list[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        alias_outputs = self.passes is None and keeps_no_gradient(optimizer, variables)

        def reduce(gradients: list[Any]) -> list[Any]:
            return self.reduction.reduce(optimizer, gradients, variables, alias_outputs)

        if self.passes is None:
            return apply(reduce(gradients))
        return self.passes.add(optimizer, gradients, variables, lambda total: apply(reduce(total)))


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes a Keras optimizer average, or sum, the gradients of all ranks before it applies them. Returns it.

    It keeps its class, so models that are compiled with it are saved as plain Keras saves them. Loading makes a plain
    optimizer: `hvd.load_model` wraps it again. Under the policy mixed_float16, it is first put into the
    LossScaleOptimizer that `compile` would put it into, which is returned, so that ranks agree on which steps to skip.

    `compression`: `hvd.Compression`, for dense gradients. `sparse_as_dense` makes gradients of embeddings dense.
    An average divides by `gradient_predivide_factor` before the sum and multiplies by it after. With
    `backward_passes_per_step` the sum of so many gradients, or their average with `average_aggregated_gradients`, is
    reduced and applied; the passes between count as iterations. Ranks outside `process_set` apply their own gradients.
    `register_local_var(variable)` of the result excludes a variable: its gradient is this rank's, divided by the number
    of ranks with `scale_local_gradients`. Names, devices and groups are checked and change nothing: gradients are
    fused anyway (`tarantella --fusion-threshold`).

    Raises TypeError for anything but a Keras optimizer, ValueError for other values, before `hvd.init`, and for an
    optimizer that is wrapped already, also inside another one.
    """
    process.check("DistributedOptimizer")
    _check(optimizer)
    op = chosen(op, among=(Average, Sum))
    if type(backward_passes_per_step) is not int or backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step must be a whole number above 0 (got {backward_passes_per_step!r})")
    check_groups(num_groups, groups)
    local = LocalVariables(scale_local_gradients)
    reduction = Reduction(op, compression, sparse_as_dense, gradient_predivide_factor, process_set, local)
    passes = None
    if backward_passes_per_step > 1:
        passes = BackwardPasses(backward_passes_per_step, average_aggregated_gradients, sparse_as_dense)
    wrapped = Wrapped(reduction, passes)
    if keras.config.dtype_policy().name == "mixed_float16" and not _scales_loss(optimizer):
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    if runtime.get_size() > 1 or passes is not None:
        hooks.check_keras()
        hook_optimizer(optimizer)
        training.set_loop(optimizer, wrapped)
    _wrapped[optimizer] = wrapped
    optimizer.register_local_var = local.add
    return optimizer


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedOptimizer` that excludes the trainable weights of one layer or several, which must be built.

    Raises ValueError for a layer without weights yet.
    """
    wrapped = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for variable in weights_of(local_layers):
        wrapped.register_local_var(variable)
    return wrapped


def weights_of(layers: Any) -> Iterable[Any]:
    """The trainable weights of a layer or of several. Raises TypeError for others, ValueError before they are built."""
    layers = [] if layers is None else [layers] if isinstance(layers, keras.layers.Layer) else list(layers)
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise TypeError(f"local_layers must be Keras layers (got {type(layer).__name__})")
        if not layer.built:
            raise ValueError(f"the local layer {layer.name!r} has no weights yet: build the model first")
        yield from layer.trainable_weights


def is_wrapped(optimizer: Any) -> bool:
    """Whether `DistributedOptimizer` has made this optimizer reduce gradients."""
    return optimizer in _wrapped


def wrapped_inside(optimizer: Any) -> Any:
    """A wrapped optimizer inside this one, None where there is none."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return inner if inner is not None and is_wrapped(inner) else None


def _check(optimizer: Any) -> None:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        hint = "; pass an optimizer, not its name" if isinstance(optimizer, str) else ""
        raise TypeError(
            f"hvd.DistributedOptimizer needs a keras.optimizers.Optimizer (got {type(optimizer).__name__}){hint}"
        )
    if is_wrapped(optimizer) or wrapped_inside(optimizer) is not None:
        raise ValueError(
            f"this {type(optimizer).__name__} is wrapped by hvd.DistributedOptimizer already: wrap each optimizer once "
            "(hvd.load_model does it too)"
        )


def _scales_loss(optimizer: Any) -> bool:
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def check_groups(num_groups: Any, groups: Any) -> None:
    """Raises ValueError for what is neither a number nor lists of variables. Warns of the older argument."""
    if num_groups:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=3)
    groups = num_groups if groups is None else groups
    lists = isinstance(groups, (list, tuple)) and all(isinstance(each, (list, tuple)) for each in groups)
    if groups is not None and not lists and not (type(groups) is int and groups >= 0):
        raise ValueError(f"groups must be a whole number, 0 or more, or a list of lists of variables (got {groups!r})")
