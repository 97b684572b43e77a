"""The error that ends the script with one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

REFUSALS = (AttributeError, NotImplementedError, TypeError, ValueError, tf.errors.OpError)


class ConfigError(ValueError):
    """The configuration is wrong, or the data that it names. The message is one sentence for the user."""


@contextlib.contextmanager
def refused(section: str, values: object) -> Iterator[None]:
    """Makes what Keras raises for values of a section one sentence, which says them."""
    try:
        yield
    except REFUSALS as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{section}: Keras does not take {values}: {said}") from None
