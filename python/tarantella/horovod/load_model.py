"""`load_model`: loads a model whose optimizer reduces gradients."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import h5py
import keras

from .._job import log
from ..keras import private
from . import process
from .optimizer import DistributedOptimizer
from .reductions import Compression


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
        model.optimizer = DistributedOptimizer(_for(model, filepath), compression=compression)
    return model


def _for(model: Any, filepath: Any) -> Any:
    """The model's optimizer, or a new one if Keras has not built it for the model's variables."""
    optimizer = model.optimizer
    known = {id(each) for each in private.variables_of(optimizer)} if optimizer.built else set()
    if not optimizer.built or known >= {id(each) for each in model.trainable_variables}:
        return optimizer
    log.logger.warning(
        "Keras does not restore the state of the optimizer from %s, so it is reset; save as .keras", filepath
    )
    return type(optimizer).from_config(optimizer.get_config())
