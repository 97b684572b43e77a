"""The private names of Keras that are read or patched, and lists of the parts of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving import saving_lib
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter, can_convert_arrays
from keras.src.trainers.data_adapters.array_slicing import train_validation_split
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

__all__ = [
    "ArrayDataAdapter",
    "DataAdapter",
    "GeneratorDataAdapter",
    "TFDatasetAdapter",
    "array_slicing",
    "can_convert_arrays",
    "class_weight_to_sample_weights",
    "compiled_is_built",
    "compiled_mark",
    "compiled_parts",
    "data_adapters",
    "legacy_h5_format",
    "loss_arguments",
    "loss_trackers",
    "metrics_of",
    "normalizations",
    "optimizers",
    "optimizers_in",
    "saving_lib",
    "train_validation_split",
]


def loss_trackers(model: Any) -> list[Any]:
    """The model's running means of the loss, in total and for each output."""
    total = getattr(model, "_loss_tracker", None)
    parts = getattr(getattr(model, "_compile_loss", None), "metrics", [])
    return [tracker for tracker in [total, *parts] if tracker is not None]


def metrics_of(model: Any) -> list[Any]:
    """The model's metrics, those given to compile one by one."""
    return [each for metric in model.metrics for each in getattr(metric, "metrics", [metric])]


def normalizations(model: Any) -> list[Any]:
    """The BatchNormalization layers of a model."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]


def optimizers(model: Any) -> list[Any]:
    """The optimizers of a model and of the models inside it, without those that live inside another optimizer."""
    owners = [model, *(layer for layer in model._flatten_layers() if isinstance(layer, keras.Model))]
    found: list[Any] = []
    for candidate in [each for owner in owners for each in optimizers_in(vars(owner).values())]:
        if all(candidate is not each for each in found):
            found.append(candidate)
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


def compiled_parts(model: Any) -> list[Any]:
    """What holds the losses and metrics given to compile."""
    parts = (getattr(model, name, None) for name in ("_compile_loss", "_compile_metrics"))
    return [part for part in parts if part is not None]


def loss_arguments(loss: Any) -> dict[str, Any] | None:
    """The arguments with which a loss calls its function; None for a loss that wraps no function."""
    return getattr(loss, "_fn_kwargs", None)


def compiled_mark(model: Any) -> Any:
    """An object that each `compile` of the model makes anew."""
    return getattr(model, "_loss_tracker", None)


def compiled_is_built(model: Any) -> bool:
    """Whether the losses and metrics given to compile have made what they keep."""
    return all(part.built for part in compiled_parts(model))
