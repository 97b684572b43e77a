"""The data sets, by their names in configurations. Their keyword-only parameters are the keys of the section `data`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from utils.errors import InputError

from . import cifar10, dummy, imagenet
from .pipeline import Datasets

__all__ = ["DATASETS", "Datasets", "get_datasets"]

DATASETS: dict[str, Callable[..., Datasets]] = {
    "cifar10": cifar10.get_datasets,
    "imagenet": imagenet.get_datasets,
    "dummy": dummy.get_datasets,
}


def get_datasets(name: str, **arguments: Any) -> Datasets:
    """Loads the data set called `name`. Call it on all ranks: one downloads, the others wait. Raises InputError."""
    try:
        return DATASETS[name](**arguments)
    except MemoryError as error:
        raise InputError(f"the data set {name} does not fit into memory: {error}") from None
