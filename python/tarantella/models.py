"""What `keras.models` offers, for `tarantella.Model`: make, clone, save and load."""

from __future__ import annotations

import json
from typing import Any

import keras

from .keras import files
from .keras.model import Model, model_from_config, plain, yaml_for
from .keras.strategy import ParallelStrategy

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


def model_from_json(
    json_string: str,
    custom_objects: dict[str, Any] | None = None,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """A model of the layers that `to_json` describes, without their weights."""
    return Model(keras.models.model_from_json(json_string, custom_objects), parallel_strategy)


def model_from_yaml(
    yaml_string: str,
    custom_objects: dict[str, Any] | None = None,
    parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
) -> Model:
    """A model of the layers that `to_yaml` describes, without their weights.

    Reads plain values only, so no text can run code. Raises ImportError where PyYAML is not installed, ValueError
    for YAML that describes no model or asks for more than plain values, as files of Keras 2 may.
    """
    yaml = yaml_for("model_from_yaml")
    try:
        description = yaml.safe_load(yaml_string)
    except yaml.YAMLError as error:
        raise ValueError(
            f"model_from_yaml reads what tarantella.Model.to_yaml wrote, and no Python objects: {error}"
        ) from error
    if not isinstance(description, dict):
        raise ValueError(
            f"model_from_yaml needs what tarantella.Model.to_yaml wrote: this text describes no model "
            f"({yaml_string[:80]!r})"
        )
    return model_from_json(json.dumps(description), custom_objects, parallel_strategy)
