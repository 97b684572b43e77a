"""The models, by the names that configurations use. Their parameters are the keys of the section `model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from utils.errors import refused

from .cnn import cnn
from .resnet import resnet50, resnet_small

MODELS: dict[str, Callable[..., keras.Model]] = {"cnn": cnn, "resnet_small": resnet_small, "resnet50": resnet50}


def get_model(name: str, **parameters: Any) -> keras.Model:
    """Builds the model called `name`. Raises InputError for values that Keras refuses."""
    with refused("model", parameters):
        return MODELS[name](**parameters)
