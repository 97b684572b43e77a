"""What `keras.models` offers, for `tarantella.Model`: make, clone, save and load."""

from __future__ import annotations

from typing import Any

import keras

from ._strategy import ParallelStrategy
from .keras import files
from .keras.model import Model, plain

__all__ = [
    "clone_model",
    "load_model",
    "model_from_config",
    "model_from_json",
    "model_from_yaml",
    "save_model",
]


def clone_model(model: Any, *args: Any, **kwargs: Any) -> Model:
    """A `tarantella.Model` of the same layers with weights of its own, as `keras.models.clone_model` makes it.

    Takes a Keras model or a `tarantella.Model`, whose strategy the clone keeps.
    """
    strategy = getattr(model, "parallel_strategy", ParallelStrategy.DATA)
    return Model(keras.models.clone_model(plain(model), *args, **kwargs), strategy)


def save_model(
    model: Any, filepath: Any, overwrite: bool = True, *, tnt_save_all_devices: bool = False, **kwargs: Any
) -> None:
    """`tarantella.Model.save` for a Keras model or a `tarantella.Model`."""
    Model(model).save(filepath, overwrite, tnt_save_all_devices=tnt_save_all_devices, **kwargs)


def load_model(
    filepath: Any,
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """Loads what `save` wrote (or plain Keras), with its optimizer's state, as a `tarantella.Model`.

    Every rank reads the file. A file holds no strategy: it is an argument here. Raises Keras's ValueError for
    a file that is no model.
    """
    model = keras.models.load_model(files.existing(filepath, "save"), custom_objects, compile, safe_mode)
    return Model(model, parallel_strategy)


def model_from_config(
    config: dict[str, Any],
    custom_objects: dict[str, Any] | None = None,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """A model of the layers that `get_config` describes, without their weights.

    Takes what `get_config` of a functional or a Sequential model gives, or a serialized Keras object.
    Raises ValueError for anything else.
    """
    if not isinstance(config, dict) or not {"layers", "class_name"} & set(config):
        raise ValueError(
            f"model_from_config needs what get_config of a functional or Sequential model gives (got {config!r:.80}); "
            "use from_config of your own class for a subclassed model"
        )
    with keras.saving.custom_object_scope(custom_objects or {}):
        if "class_name" in config:
            return Model(keras.saving.deserialize_keras_object(config), parallel_strategy)
        kind = keras.Model if "input_layers" in config else keras.Sequential
        return Model(kind.from_config(config), parallel_strategy)


def model_from_json(
    json_string: str,
    custom_objects: dict[str, Any] | None = None,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """A model of the layers that `to_json` describes, without their weights."""
    return Model(keras.models.model_from_json(json_string, custom_objects), parallel_strategy)


def model_from_yaml(*args: Any, **kwargs: Any) -> Model:
    """Raises RuntimeError: Keras took YAML out, because reading it could run code."""
    raise RuntimeError("Keras has no YAML any more, because reading it could run code; use model_from_json")
