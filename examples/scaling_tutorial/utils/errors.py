"""What Keras refuses, as the error that ends the script with one sentence."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`
from common.errors import InputError

REFUSALS = (AttributeError, NotImplementedError, TypeError, ValueError, tf.errors.OpError)


@contextlib.contextmanager
def refused(section: str, values: object) -> Iterator[None]:
    """Makes what Keras raises for values of a section one sentence, which says them."""
    try:
        yield
    except REFUSALS as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{section}: Keras does not take {values}: {said}") from None
