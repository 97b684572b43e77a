"""Where `jit_compile=True` has to be switched off on several ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from ..._backend import backend
from ..._job import log
from ...data.feed import Feed
from .. import private


@contextlib.contextmanager
def off_for_own_data(model: Any, feeds: list[Feed]) -> Iterator[None]:
    """Makes uncompiled steps for a call with data of each rank's own, of which no step knows whether it is the last."""
    if not model.jit_compile or all(feed.distributed for feed in feeds):
        yield
        return
    log.warn_once("jit_compile=True is switched off for data of each rank's own")
    functions = model.train_function, model.test_function  # which a call around this one may be running
    model.jit_compile = False
    model.train_function = model.test_function = None
    try:
        yield
    finally:
        model.jit_compile = True
        model.train_function, model.test_function = functions


def off_for_training(model: Any) -> None:
    """Makes an uncompiled training step where XLA cannot reduce gradients; evaluate and predict stay compiled."""
    if not model.jit_compile or model.train_function is not None:
        return
    layers = private.every_layer(model)
    sparse = [each.name for each in layers if isinstance(each, keras.layers.Embedding) and each.trainable_weights]
    if sparse:
        reason = f"the sparse gradients of {', '.join(sparse)} (Embedding)"
    elif not backend.can_compile():
        reason = "this version of TensorFlow"
    else:
        return
    log.warn_once(f"jit_compile=True is switched off for training on several ranks: not possible with {reason}")
    model.jit_compile = False
    try:
        model.make_train_function(force=True)
    finally:
        model.jit_compile = True
