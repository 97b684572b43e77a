"""How a method of an object is replaced by a hook: the only way to patch Keras."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any


def hooked(owner: Any, name: str, layer: str = "") -> bool:
    """Whether this attribute of this very object is one of our hooks, with one of this layer."""
    return layer in getattr(vars(owner).get(name), "_tarantella_layers", ())


def original(owner: Any, name: str) -> Callable[..., Any]:
    """The method of this very object, without our hooks."""
    method = getattr(owner, name)
    while hasattr(method, "_tarantella_original"):
        method = method._tarantella_original
    unhooked: Callable[..., Any] = method
    return unhooked


def hook(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], layer: str = "") -> bool:
    """Puts `make(original)` in the place of a method of this object, once a layer. True if it was put now."""
    if hooked(owner, name, layer):
        return False
    original = getattr(owner, name)
    replacement = functools.wraps(original)(make(original))
    replacement._tarantella_original = original  # type: ignore[attr-defined]
    replacement._tarantella_layers = {layer, *getattr(original, "_tarantella_layers", ())}  # type: ignore[attr-defined]
    setattr(owner, name, replacement)
    return True


@contextlib.contextmanager
def hooking(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], layer: str = ""
) -> Iterator[None]:
    """As `hook`, for a while."""
    before = vars(owner).get(name)
    fresh = hook(owner, name, make, layer)
    try:
        yield
    finally:
        if fresh and before is not None:
            setattr(owner, name, before)
        elif fresh:
            delattr(owner, name)
