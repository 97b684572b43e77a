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
from ..step import compute_loss, gathered


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


_CALLED = {"train": "training", "test": "evaluation"}


def off_where_impossible(model: Any, *kinds: str) -> None:
    """Makes uncompiled steps of these kinds, "train" and "test", where XLA cannot reduce over the ranks."""
    if not model.jit_compile:
        return
    layers = private.every_layer(model)
    sparse = [each.name for each in layers if isinstance(each, keras.layers.Embedding) and each.trainable_weights]
    reason = backend.why_not_compiled()
    functions = ["compute_loss"] * compute_loss.sees_all_rows(model) + gathered.names(model)
    if not reason and functions:
        reason = f"the rows of all ranks for {', '.join(functions)}, which tnt_reduction = 'mean' or 'sum' would save"
    if not reason and sparse and "train" in kinds:
        kinds, reason = ("train",), f"the sparse gradients of {', '.join(sparse)} (Embedding)"
    for kind in kinds if reason else ():
        if getattr(model, f"{kind}_function") is None:
            _make_uncompiled(model, kind, reason)


def _make_uncompiled(model: Any, kind: str, reason: str) -> None:
    log.warn_once(f"jit_compile=True is switched off for {_CALLED[kind]} on several ranks: not possible with {reason}")
    model.jit_compile = False
    try:
        getattr(model, f"make_{kind}_function")(force=True)
    finally:
        model.jit_compile = True
