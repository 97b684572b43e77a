"""`DistributedOptimizer`: a Keras optimizer that reduces the gradients of all ranks before it applies them.

`load_model` loads a model with one.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import h5py
import keras

from .._job import log, runtime
from ..keras import hooks, model_state, private
from ..keras.step.gradients import hook_optimizer, keeps_no_gradient
from . import process
from .gradients import BackwardPasses, Reduction
from .process import ProcessSet, global_process_set
from .reductions import Average, Compression

_wrapped: weakref.WeakSet[Any] = weakref.WeakSet()


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

    It keeps its class, so plain Keras can load models that were compiled with it; `hvd.load_model` wraps the optimizer
    again. Under the policy mixed_float16, it is first wrapped in the LossScaleOptimizer that `compile` would add, which
    is returned, so that ranks agree on which steps to skip.

    `compression`: a `hvd.Compression`, for dense gradients. `sparse_as_dense` makes gradients of embeddings dense.
    An average divides by `gradient_predivide_factor` before the sum and multiplies by it after. With
    `backward_passes_per_step`, the sum of that many gradients, or their average with `average_aggregated_gradients`, is
    reduced and applied; each pass counts as an iteration. Ranks outside `process_set` apply their own gradients.
    `register_local_var(variable)` of the result excludes a variable: its gradient stays that of this rank, divided by
    the number of ranks with `scale_local_gradients`. Names, devices and groups are checked but have no effect:
    gradients are always fused (`tarantella --fusion-threshold`).

    Raises TypeError for anything except a Keras optimizer; ValueError for invalid values, before `hvd.init`, and if the
    optimizer is already wrapped, also inside another one.
    """
    process.check("DistributedOptimizer")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        hint = "; pass an optimizer, not its name" if isinstance(optimizer, str) else ""
        raise TypeError(
            f"hvd.DistributedOptimizer needs a keras.optimizers.Optimizer (got {type(optimizer).__name__}){hint}"
        )
    if optimizer in _wrapped or wrapped_inside(optimizer) is not None:
        raise ValueError(
            f"this {type(optimizer).__name__} is wrapped by hvd.DistributedOptimizer already: wrap each optimizer once "
            "(hvd.load_model wraps it too)"
        )
    if type(backward_passes_per_step) is not int or backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step must be a whole number above 0 (got {backward_passes_per_step!r})")
    check_groups(num_groups, groups)
    reduction = Reduction(
        op, compression, sparse_as_dense, gradient_predivide_factor, process_set, scale_local_gradients
    )
    passes = None
    if backward_passes_per_step > 1:
        passes = BackwardPasses(backward_passes_per_step, average_aggregated_gradients, sparse_as_dense)

    def apply_reduced(
        optimizer: Any, gradients: list[Any], variables: list[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        alias_outputs = passes is None and keeps_no_gradient(optimizer, variables)

        def reduce_and_apply(gradients: list[Any]) -> Any:
            return apply(reduction.reduce(optimizer, gradients, variables, alias_outputs))

        if passes is None:
            return reduce_and_apply(gradients)
        return passes.add(optimizer, gradients, variables, reduce_and_apply)

    scaled = keras.optimizers.LossScaleOptimizer
    if keras.config.dtype_policy().name == "mixed_float16" and not isinstance(optimizer, scaled):
        optimizer = scaled(optimizer)
    if runtime.get_size() > 1 or passes is not None:
        hooks.check_keras()
        hook_optimizer(optimizer)
        model_state.loops[optimizer] = apply_reduced
    _wrapped.add(optimizer)
    optimizer.register_local_var = reduction.local.add
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
    """`DistributedOptimizer` without the trainable weights of one or several layers.

    Raises ValueError before they are built.
    """
    options = {**locals()}
    del options["local_layers"]
    wrapped = DistributedOptimizer(**options)
    for variable in weights_of(local_layers):
        wrapped.register_local_var(variable)
    return wrapped


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model that Keras has saved, and wraps its optimizer, if it has one, with `DistributedOptimizer`.

    `filepath` may be an open h5py.File. The optimizer keeps its state, except from .h5 files: Keras 3 does not restore
    it, and a WARNING is logged. One rank may load alone if `BroadcastGlobalVariablesCallback` sends its variables to
    the others. `custom_optimizers` are user-defined classes of optimizers, `custom_objects` other objects by name.
    Raises ValueError for a file that is not a model of Keras 3, FileNotFoundError for a file that does not exist, and
    NotImplementedError for `legacy_opts`.
    """
    process.check("load_model")
    if legacy_opts:
        raise NotImplementedError("Keras 3 has no legacy optimizers: leave legacy_opts out")
    filepath = filepath.filename if isinstance(filepath, h5py.File) else filepath
    objects = {each.__name__: each for each in custom_optimizers or ()}
    if isinstance(filepath, (str, os.PathLike)) and "://" not in os.fspath(filepath) and not os.path.exists(filepath):
        raise FileNotFoundError(f"hvd.load_model: there is no file {os.fspath(filepath)!r}")
    try:
        model = keras.models.load_model(filepath, {**objects, **(custom_objects or {})})
    except Exception as error:
        raise ValueError(
            f"hvd.load_model cannot read {str(filepath)!r} as a model of Keras 3, saved as .keras or .h5 ({error}); "
            "user-defined classes need custom_objects"
        ) from error
    if getattr(model, "optimizer", None) is not None:  # Keras has no attribute before compile
        model.optimizer = DistributedOptimizer(_optimizer_of(model, filepath), compression=compression)
    return model


def _optimizer_of(model: Any, filepath: Any) -> Any:
    """The model's optimizer, or a new one if Keras has not built it for the model's variables."""
    optimizer = model.optimizer
    known = {id(each) for each in private.variables_of(optimizer)} if optimizer.built else set()
    if not optimizer.built or known >= {id(each) for each in model.trainable_variables}:
        return optimizer
    log.logger.warning(
        "Keras does not restore the state of the optimizer from %s, so it is reset; save as .keras", filepath
    )
    return type(optimizer).from_config(optimizer.get_config())


def weights_of(layers: Any) -> Iterable[Any]:
    """The trainable weights of one or several layers. Raises TypeError for others, ValueError before they are built."""
    layers = [] if layers is None else [layers] if isinstance(layers, keras.layers.Layer) else list(layers)
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise TypeError(f"local_layers must be Keras layers (got {type(layer).__name__})")
        if not layer.built:
            raise ValueError(f"the local layer {layer.name!r} has no weights yet: build the model first")
        yield from layer.trainable_weights


def wrapped_inside(optimizer: Any) -> Any:
    """The wrapped optimizer inside this one; None if there is none."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return inner if inner in _wrapped else None


def check_groups(num_groups: Any, groups: Any) -> None:
    """Raises ValueError unless `groups` is a number or lists of variables. Warns if `num_groups` is used."""
    if num_groups:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=3)
    groups = num_groups if groups is None else groups
    lists = isinstance(groups, (list, tuple)) and all(isinstance(each, (list, tuple)) for each in groups)
    if groups is not None and not lists and not (type(groups) is int and groups >= 0):
        raise ValueError(f"groups must be a whole number, 0 or more, or a list of lists of variables (got {groups!r})")
