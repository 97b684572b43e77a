"""Files: whole or not at all, by the master, and there for every rank that took part."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import keras

from .. import _log, _runtime
from .._errors import Error, MismatchError
from . import hooks

# The files that Keras 3 writes as one, by method; other targets are folders or shards.
SUFFIXES = {"save": (".keras", ".h5", ".hdf5"), "save_weights": (".weights.h5",)}

_everywhere: contextvars.ContextVar[bool] = contextvars.ContextVar("tarantella_everywhere", default=False)


@contextlib.contextmanager
def by_master(model: Any) -> Iterator[None]:
    """For a while, what callbacks call to save this Keras model, or one inside it, writes on the master only.

    It writes as a whole, and the other ranks go on at once. Not where `by_every_rank` holds.
    """
    with contextlib.ExitStack() as hooked:
        for each in model._flatten_layers():
            if isinstance(each, keras.Model):
                for method in (*SUFFIXES, "export"):
                    keras_own = getattr(type(each), method) is getattr(keras.Model, method)
                    make = functools.partial(_left_to_master, method if keras_own else None)
                    hooked.enter_context(hooks.hooking(each, method, make))
        yield


@contextlib.contextmanager
def by_every_rank() -> Iterator[None]:
    """For a while, this rank writes too, within `by_master`."""
    token = _everywhere.set(True)
    try:
        yield
    finally:
        _everywhere.reset(token)


def _left_to_master(method: str | None, original: Callable[..., Any]) -> Callable[..., Any]:
    """The hook of a method of Keras; None for one of the user's own, which may take anything and write anything."""
    whole = original if method is None else _whole(method, original)

    def save(*args: Any, **options: Any) -> Any:
        return whole(*args, **options) if _everywhere.get() or _runtime.is_master_rank() else None

    return save


def write(model: Any, method: str, path: Any, args: tuple[Any, ...], options: dict[str, Any], everywhere: bool) -> Any:
    """Calls a Keras model's save, save_weights or export: the master's, or all ranks' with `everywhere`.

    The other ranks return when the master has written: they wait for it, it waits for nobody. Raises
    tarantella.Error on them if the master failed, or goes on without a call of its own.
    """
    path = named(path, method, args, options)
    call = _whole(method, hooks.original(model, method))
    if everywhere or _runtime.get_size() == 1:
        return call(path, *args, **options)
    what = f"{method} of {os.fspath(path)!r}"
    if not _runtime.is_master_rank():
        _wait(what, method)
        return None
    failed = True
    try:
        result = call(path, *args, **options)
        failed = False
    finally:
        for name in (what, method):
            _runtime.context().post(name, int(failed))
    return result


def _wait(what: str, method: str) -> None:
    context, master = _runtime.context(), _runtime.get_master_rank()
    try:
        failed = context.wait_posted(master, what)
    except MismatchError as error:
        try:
            failed = context.wait_posted(master, method)  # to a path of its own, perhaps
        except MismatchError:
            raise error from None
    if failed:
        raise Error(f"rank {master} failed in {what}; its own error says why")


def named(path: Any, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The path with the suffix that Keras 3 asks for, where an older program gives none. Says so."""
    if method not in SUFFIXES or not isinstance(path, (str, os.PathLike)) or os.path.splitext(os.fspath(path))[1]:
        return path
    if "save_format" in options or not _asks_for_one_file(args, options):
        return path
    full = os.fspath(path) + SUFFIXES[method][0]
    _log.warn_once(f"{method}({os.fspath(path)!r}): Keras 3 needs a suffix, so the name is {full!r}; write it so")
    return full


def existing(path: Any, method: str) -> Any:
    """What `named` made of the path when it was saved, if there is no such thing under the path itself."""
    if not isinstance(path, (str, os.PathLike)) or os.path.exists(path):
        return path
    full = os.fspath(path) + SUFFIXES[method][0]
    return full if os.path.exists(full) else path


def _whole(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def save(filepath: Any, *args: Any, **options: Any) -> Any:
        if not _is_one_file(method, filepath, args, options):
            return original(filepath, *args, **options)
        target = os.path.realpath(filepath)
        # The same name each time: what a killed save leaves behind goes with the next one.
        folder, name = os.path.split(target)
        partial = os.path.join(folder, f".{_runtime.get_rank()}.partial.{name}")
        try:
            result = original(partial, *args, **options)
            os.replace(partial, target)
        except BaseException:
            if os.path.exists(partial):
                os.remove(partial)
            raise
        return result

    return save


def _is_one_file(method: str, filepath: Any, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether Keras writes this and nothing else, asks nobody, and can."""
    if not isinstance(filepath, (str, os.PathLike)) or "://" in os.fspath(filepath):
        return False
    path = os.fspath(filepath)
    overwrites = args[0] if args else options.get("overwrite", True)
    return (
        _asks_for_one_file(args, options)
        and path.endswith(SUFFIXES.get(method, ()))
        and os.path.isdir(os.path.dirname(os.path.realpath(path)))
        and not os.path.isdir(path)
        and (overwrites or not os.path.exists(path))
    )


def _asks_for_one_file(args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether the arguments beside the path ask for neither a folder nor shards."""
    return len(args) < 2 and options.get("zipped") is not False and options.get("max_shard_size") is None
