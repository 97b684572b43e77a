"""The functions of `keras.models` for `tarantella.Model`: create, clone, save and load."""

from __future__ import annotations

from typing import Any

import keras

from .compat import ParallelStrategy, json_of_yaml
from .keras import files
from .keras.model import Model
from .keras.wrapper import unwrapped

__all__ = [
    "clone_model",
    "load_model",
    "model_from_config",
    "model_from_json",
    "model_from_yaml",
    "save_model",
]


def clone_model(model: Any, *args: Any, **kwargs: Any) -> Model:
    """Clones a Keras model or a `tarantella.Model` with `keras.models.clone_model`: the same layers, new weights.

    The clone of a `tarantella.Model` keeps its strategy.
    """
    strategy = getattr(model, "parallel_strategy", ParallelStrategy.DATA)
    return Model(keras.models.clone_model(unwrapped(model), *args, **kwargs), strategy)


def save_model(
    model: Any,
    filepath: Any,
    overwrite: bool = True,
    *,
    tnt_save_all_ranks: bool | None = None,
    tnt_save_all_devices: bool | None = None,
    **kwargs: Any,
) -> None:
    """`tarantella.Model.save` for a Keras model or a `tarantella.Model`."""
    Model(model).save(
        filepath, overwrite, tnt_save_all_ranks=tnt_save_all_ranks, tnt_save_all_devices=tnt_save_all_devices, **kwargs
    )


def load_model(
    filepath: Any,
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """Loads a model that `save` or plain Keras has written, with the state of its optimizer.

    Every rank reads the file. The strategy is an argument, because files do not contain it. Raises ValueError, as Keras
    does, if the file is not a model.
    """
    model = keras.models.load_model(files.existing(filepath, "save"), custom_objects, compile, safe_mode)
    return Model(model, parallel_strategy)


def model_from_config(
    config: dict[str, Any],
    custom_objects: dict[str, Any] | None = None,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """Creates a model from the output of `get_config`, which describes the layers but not their weights.

    Takes that of a functional or a Sequential model, or a serialized Keras object. Raises ValueError for anything else.
    """
    return Model(Model.from_config(config, custom_objects), parallel_strategy)


def model_from_json(
    json_string: str,
    custom_objects: dict[str, Any] | None = None,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """Creates a model from the output of `to_json`, which describes the layers but not their weights."""
    return Model(keras.models.model_from_json(json_string, custom_objects), parallel_strategy)


def model_from_yaml(
    yaml_string: str,
    custom_objects: dict[str, Any] | None = None,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """Creates a model from the output of `to_yaml`, which describes the layers but not their weights.

    Reads plain values only, so no text can run code. Raises ImportError if PyYAML is not installed, ValueError for YAML
    that does not describe a model or contains Python objects, as files of Keras 2 may.
    """
    return model_from_json(json_of_yaml(yaml_string), custom_objects, parallel_strategy)
