"""An object that stands for a Keras model: it has the model's attributes and passes as one of its kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras

from ..compat import ParallelStrategy

_OWN = ("_tarantella_model", "_tarantella_strategy")


class Wrapper:
    """Reads attributes that it does not define from a Keras model, and sets all on it.

    Raises TypeError for anything but a Keras 3 model or another wrapper, whose model it then wraps.
    """

    def __init__(self, model: Any, strategy: ParallelStrategy) -> None:
        model = unwrapped(model)
        _check_kind(model)
        object.__setattr__(self, "_tarantella_model", model)
        object.__setattr__(self, "_tarantella_strategy", strategy)

    @property
    def keras_model(self) -> Any:
        """The Keras model inside."""
        return self._tarantella_model

    @property
    def parallel_strategy(self) -> ParallelStrategy:
        """The strategy given at construction."""
        strategy: ParallelStrategy = self._tarantella_strategy
        return strategy

    # isinstance and Keras's own checks see the kind of the model inside.
    __class__ = property(lambda self: type(self._tarantella_model))

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:  # not constructed yet
            raise AttributeError(name)
        return getattr(self._tarantella_model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._tarantella_model, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._tarantella_model, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self._tarantella_model)})

    def __repr__(self) -> str:
        return f"<tarantella.Model of {self._tarantella_model!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the Keras model, on this rank alone."""
        return self._tarantella_model(*args, **kwargs)


def unwrapped(model: Any) -> Any:
    """The Keras model inside, or the Keras model itself."""
    return model.keras_model if issubclass(type(model), Wrapper) else model


def _check_kind(model: Any) -> None:
    modules = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    if "tf_keras" in modules:
        raise TypeError(
            "tarantella.Model needs a Keras 3 model, and this is one of tf_keras (Keras 2); build it with "
            "`import keras`, and unset TF_USE_LEGACY_KERAS"
        )
    if not isinstance(model, keras.Model):
        raise TypeError(f"tarantella.Model needs a keras.Model (got {type(model).__name__})")


def merged_signature(of_keras: Callable[..., Any], ours: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a method of Keras, without its **kwargs, and the keyword-only ones of ours."""
    theirs = inspect.signature(of_keras).parameters.values()
    return inspect.Signature(
        [
            *(each for each in theirs if each.kind is not each.VAR_KEYWORD),
            *(each for each in inspect.signature(ours).parameters.values() if each.kind is each.KEYWORD_ONLY),
        ]
    )
