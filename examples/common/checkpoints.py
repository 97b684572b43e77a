"""Going on from the checkpoint of an earlier training."""

from __future__ import annotations

import re
from pathlib import Path

import keras

from .errors import InputError


def restore(model: keras.Model, folder: str | Path, name: str) -> int:
    """Loads the newest checkpoint into a compiled model, with the state of the optimizer, on each rank that calls it.

    name: what ModelCheckpoint got, such as "model-{epoch:04d}.weights.h5".

    Returns the epoch of the checkpoint, or 0 if `folder` has none. Raises InputError if it does not fit the model.
    """
    before, after = name.split("{epoch:04d}")
    pattern = re.compile(rf"{re.escape(before)}(\d+){re.escape(after)}")
    matches = (pattern.fullmatch(path.name) for path in Path(folder).glob("*"))
    epochs = {int(match[1]): match[0] for match in matches if match}
    if not epochs:
        return 0
    path = Path(folder, epochs[max(epochs)])
    model.optimizer.build(model.trainable_variables)
    try:
        model.load_weights(str(path))
    except (ValueError, KeyError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"the checkpoint {path} is damaged or of another model ({reason})") from None
    return max(epochs)
