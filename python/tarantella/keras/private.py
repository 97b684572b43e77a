"""Every private name of Keras that is read or patched, once: the other modules call the functions below.

`hooks.check_keras` checks that those in `NAMES` exist, and tools/compatibility.sh that they mean the same. Modules of
`keras.src` are imported here and nowhere else.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
from keras import tree

KNOWN = "3.5 to 3.16"

try:
    from keras.src.legacy.saving import legacy_h5_format as legacy_h5_format
    from keras.src.losses.losses import LossFunctionWrapper
    from keras.src.saving import saving_api as saving_api
    from keras.src.saving import saving_lib as saving_lib
    from keras.src.trainers import data_adapters as data_adapters
    from keras.src.trainers.data_adapters import array_slicing as array_slicing
    from keras.src.trainers.data_adapters import data_adapter_utils as data_adapter_utils
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter as ArrayDataAdapter
    from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays as can_convert_arrays
    from keras.src.trainers.data_adapters.data_adapter import DataAdapter as DataAdapter
    from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter as GeneratorDataAdapter
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter as PyDatasetAdapter
    from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter as TFDatasetAdapter
except ImportError as missing:
    raise ImportError(
        f"Keras {keras.__version__} lacks what tarantella needs ({missing}); known to work: Keras {KNOWN}"
    ) from missing
_masking: Any = None
with contextlib.suppress(ImportError):  # before Keras 3.6 masks are attributes of tensors, which JAX's may not have
    from keras.src.backend.common import masking as _masking  # type: ignore[no-redef]

# Methods and attributes that `keras.hooks` replaces.
METRICS_RESULT = "_get_metrics_result_or_logs"
REGULARIZATION_LOSSES = "_get_regularization_losses"
MOMENTS = "_moments"
FUNCTION = "_fn"
SYMBOLIC_BUILD = "_symbolic_build"  # on JAX only

# By owner: a kind of object, or a module of which names are not imported above.
NAMES: dict[str, tuple[str, ...]] = {
    "Model": (
        "_compile_loss",
        "_compile_metrics",
        "_loss_tracker",
        "_flatten_layers",
        "_flatten_metrics_in_order",
        "_initial_epoch",
        METRICS_RESULT,
    ),
    "Layer": (REGULARIZATION_LOSSES,),
    "BatchNormalization": (MOMENTS,),
    "CompileLoss": ("flat_losses or _flat_losses", "_user_loss"),  # until Keras 3.6, and after it
    "CompileMetrics": ("_user_metrics", "_user_weighted_metrics"),
    "MeanMetricWrapper": (FUNCTION, "_fn_kwargs"),
    "Optimizer": ("_trainable_variables",),
    "ModelCheckpoint": ("_should_save_on_batch",),
    "ArrayDataAdapter": ("_inputs", "_num_samples", "_shuffle"),
    "saving_lib": ("save_model", "save_weights_only"),
    "legacy_h5_format": ("save_model_to_hdf5",),
    "saving_api": ("load_model", "load_weights"),
    "data_adapters": ("get_data_adapter",),
    "array_slicing": ("convert_to_sliceable", "TensorflowSparseWrapper", "slice_tensorflow_sparse_wrapper"),
}


def version() -> tuple[int, ...]:
    """Major and minor number of this Keras."""
    return tuple(map(int, keras.__version__.split(".")[:2]))


def every_layer(model: Any, include_self: bool = True) -> list[Any]:
    """The layers of a model or layer at any depth, itself first if it is wanted."""
    return model._flatten_layers(include_self=include_self)


def is_seed(variable: Any) -> bool:
    """Whether a variable is the state of a generator of random numbers."""
    return bool(variable.name == "seed_generator_state")


def _of_compiled(model: Any, name: str) -> Any:
    """An attribute that compile sets; before, Keras 3.5 has none and later ones have None."""
    return getattr(model, name) if getattr(model, "compiled", False) else None


def loss_tracker(model: Any) -> Any:
    """The running mean of a model's whole loss: another one after each compile. None before."""
    return _of_compiled(model, "_loss_tracker")


def loss_trackers(model: Any) -> list[Any]:
    """The model's running means of the loss, in total and for each output."""
    compiled = compiled_losses(model)
    parts = [] if compiled is None else compiled.metrics
    return [tracker for tracker in [loss_tracker(model), *parts] if tracker is not None]


def compiled_losses(model: Any) -> Any:
    """The container of the losses given to compile, None where there are none."""
    return _of_compiled(model, "_compile_loss")


def compiled_parts(model: Any) -> list[Any]:
    """The containers of the losses and metrics given to compile."""
    parts = (compiled_losses(model), _of_compiled(model, "_compile_metrics"))
    return [part for part in parts if part is not None]


def compiled_is_built(model: Any) -> bool:
    """Whether the losses and metrics given to compile are built."""
    return all(part.built for part in compiled_parts(model))


def replace_losses(compiled: Any, make: Callable[[Any], Any]) -> None:
    """Puts `make(loss)` in the place of each loss given to compile; nothing before they are built."""
    if not compiled.built:
        return
    if hasattr(compiled, "flat_losses"):
        compiled.flat_losses = [make(loss) for loss in compiled.flat_losses]
    else:
        compiled._flat_losses = [entry._replace(loss=make(entry.loss)) for entry in compiled._flat_losses]


def mask_of(tensor: Any) -> Any:
    """The mask that Keras has attached to a tensor, None where there is none."""
    return _masking.get_keras_mask(tensor) if _masking else getattr(tensor, "_keras_mask", None)


def set_mask(tensor: Any, mask: Any) -> None:
    """Attaches a mask to a tensor."""
    if _masking:
        _masking.set_keras_mask(tensor, mask)
    else:
        tensor._keras_mask = mask


def logits_of(tensor: Any) -> Any:
    """The logits from which Keras has made a tensor, None where it does not say."""
    return getattr(tensor, "_keras_logits", None)


def set_logits(tensor: Any, logits: Any) -> None:
    """Attaches logits to a tensor."""
    tensor._keras_logits = logits


def metrics_of(model: Any) -> list[Any]:
    """The model's metrics, those given to compile one by one."""
    return [each for metric in model.metrics for each in getattr(metric, "metrics", [metric])]


def metrics_to_compile(model: Any) -> list[Any]:
    """The metrics given to compile, one by one, once they are built."""
    compiled = _of_compiled(model, "_compile_metrics")
    return [] if compiled is None else compiled.metrics


def given_to_compile(model: Any) -> list[Any]:
    """The losses and metrics given to compile as objects and functions, and losses given by name."""
    losses, metrics = compiled_losses(model), _of_compiled(model, "_compile_metrics")
    found = [] if losses is None else tree.flatten(losses._user_loss)
    found = [_loss_named(each) if isinstance(each, str) else each for each in found]
    if metrics is not None:
        found += tree.flatten([metrics._user_metrics, metrics._user_weighted_metrics])
    return [each for each in found if each is not None and not isinstance(each, str)]


def _loss_named(name: str) -> Any:
    return None if name.lower() in ("crossentropy", "ce") else keras.losses.get(name)


_WRAPPERS = (LossFunctionWrapper, keras.metrics.MeanMetricWrapper)


def options_of(owner: Any) -> dict[str, Any]:
    """The keyword arguments with which a loss or metric calls its function; none for one that calls no function."""
    return owner._fn_kwargs if isinstance(owner, _WRAPPERS) else {}


def function_of(owner: Any) -> Any:
    """The function that a loss or metric calls, None for one that calls none."""
    name = "fn" if isinstance(owner, LossFunctionWrapper) else FUNCTION
    return getattr(owner, name) if isinstance(owner, _WRAPPERS) else None


def results(model: Any, logs: Any) -> Any:
    """The results of the model's metrics, or the logs of a step that returns others."""
    return getattr(model, METRICS_RESULT)(logs)


def in_order(model: Any, logs: Mapping[str, Any]) -> Any:
    """Logs as the list, or the single number, that train_on_batch returns."""
    return model._flatten_metrics_in_order(logs)


def resets_metrics() -> bool:
    """Whether train_on_batch resets the metrics first. Before Keras 3.15 they run on from batch to batch."""
    return version() >= (3, 15)


def initial_epoch(model: Any) -> int | None:
    """The epoch that BackupAndRestore has restored, None where it has not."""
    epoch = model._initial_epoch
    return None if epoch is None else int(epoch)  # a callback of the user's may set one of NumPy


def set_initial_epoch(model: Any, epoch: int | None) -> None:
    """Sets the epoch that fit starts from, whatever its argument is."""
    model._initial_epoch = epoch


def optimizers(model: Any) -> list[Any]:
    """The optimizers of a model and of the models inside it, without those that live inside another optimizer."""
    owners = [model, *(layer for layer in every_layer(model) if isinstance(layer, keras.Model))]
    found = list({id(each): each for owner in owners for each in optimizers_in(vars(owner).values())}.values())
    inner = [child for each in found for child in optimizers_in(vars(each).values())]
    return [each for each in found if all(each is not child for child in inner)]


def optimizers_in(values: Iterable[Any]) -> list[Any]:
    """Those among the values, and in lists, tuples and dicts among them."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, keras.optimizers.Optimizer):
            found.append(value)
        elif isinstance(value, dict):
            found.extend(optimizers_in(value.values()))
        elif isinstance(value, (list, tuple)):
            found.extend(optimizers_in(value))
    return found


def variables_of(optimizer: Any) -> list[Any]:
    """The variables that a built optimizer updates, in the order of its gradients."""
    return list(optimizer._trainable_variables)


def is_of_keras(value: Any) -> bool:
    """Whether a class or function comes from Keras itself."""
    return str(getattr(value, "__module__", "")).startswith("keras.")


def saves_on_batches(callback: Any) -> bool:
    """Whether it is a checkpoint of Keras that may save in the middle of an epoch."""
    return isinstance(getattr(callback, "save_freq", None), int) and hasattr(callback, "_should_save_on_batch")


def would_save(callback: Any, batch: int) -> bool:
    """Whether such a checkpoint saves after this batch. Asks a copy, because Keras's method counts the batches."""
    return bool(copy.copy(callback)._should_save_on_batch(batch))


def arrays_of(adapter: Any) -> Any:
    """The arrays of an ArrayDataAdapter, in the structure of a batch."""
    return adapter._inputs


def rows_of(adapter: Any) -> int:
    """The rows of an ArrayDataAdapter's arrays."""
    return int(adapter._num_samples)


def is_shuffled(adapter: Any) -> Any:
    """The argument `shuffle` of an ArrayDataAdapter."""
    return adapter._shuffle


def draw_alike(oracle: Any) -> None:
    """Reseeds the generator that an oracle of KerasTuner may have, such as BayesianOptimization."""
    if hasattr(oracle, "_random_state"):
        oracle._random_state = np.random.RandomState(oracle.seed)
