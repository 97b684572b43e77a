"""Saving: the master writes complete files or none, even if power is lost, and the other ranks wait for them."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import keras

from .._backend import backend
from .._job import log, runtime, shared_files
from .._job.errors import MismatchError, PeerLostError
from . import h5_files, hooks, model_state, private, written

# The suffixes of single files that Keras 3 writes, by method; other targets are folders or shards.
SUFFIXES = {"save": (".keras", ".h5", ".hdf5"), "save_weights": (".weights.h5",)}

# The master's notification of a save: it returned None, it failed, it returned something.
_NOTHING, _FAILED, _DONE = 0, 1, 2


def hook_writers() -> None:
    """Makes Keras write complete files, on the master, for every tarantella.Model and for models in `by_master`."""
    # All saving ends in these, of methods of models and of functions of Keras.
    hooks.hook(private.saving_lib, "save_model", functools.partial(_writer, "save"))
    hooks.hook(private.legacy_h5_format, "save_model_to_hdf5", functools.partial(_writer, "save"))
    hooks.hook(private.saving_lib, "save_weights_only", functools.partial(_writer, "save_weights"))


def hook_checkpoints() -> None:
    """Hooks the backend's checkpoints: of all ranks that save to a path only the master writes; the others wait for it.

    A rank whose path differs from the master's, or that saves while the master does not, writes. Idempotent.
    """
    for owner, name, follow in backend.checkpoint_writers:
        hooks.hook(owner, name, functools.partial(_written_once, f"{owner.__name__}.{name}", follow))


def _written_once(name: str, follow: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def save(*args: Any, **options: Any) -> Any:
        call = functools.partial(original, *args, **options)
        path, following = follow(*args, **options)
        return together(name, path, call, written.is_by_every_rank(), following, elsewhere=call)

    return save


@contextlib.contextmanager
def by_master(model: Any) -> Iterator[None]:
    """Inside this context, saving this Keras model, or a model inside it, writes on the master only.

    On the other ranks, save returns at once, and so does what moves or removes the file. `written.by_every_rank`
    overrides it.
    """
    with written.moving_by_master(), contextlib.ExitStack() as hooked:
        for each in private.every_layer(model):
            if isinstance(each, keras.Model):
                hooked.enter_context(hooks.setting(model_state.of(each), saved_by_master=True))
                for method in (*SUFFIXES, "export"):
                    hooked.enter_context(hooks.hooking(each, method, _left_to_master))
        yield


def _left_to_master(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(*args: Any, **options: Any) -> Any:
        path = args[0] if args else options.get("filepath")
        return written.by_master(path, lambda: original(*args, **options))

    return save


def _writer(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def save(model: Any, filepath: Any, *args: Any, **options: Any) -> Any:
        by_all, wrapped = written.is_by_every_rank(), getattr(model, "_tarantella_model", None)
        if wrapped is not None:  # a tarantella.Model that was passed to a function of Keras
            return together(method, filepath, lambda: save(wrapped, filepath, *args, **options), by_all)
        known = model_state.get(model)
        if not by_all and not (known and known.saved_by_master):
            return original(model, filepath, *args, **options)
        return written.by_master(filepath, lambda: write(model, filepath, *args, **options))

    def write(model: Any, filepath: Any, *args: Any, **options: Any) -> Any:
        shards = method == "save_weights" and (any(args) or options.get("max_shard_size") is not None)
        if shards or not _is_one_file(method, filepath):
            with _naming(f"{method} of {str(filepath)!r}"):
                return write_to(model, filepath, *args, **options)
        return _whole(filepath, lambda partial: write_to(model, partial, *args, **options))

    def write_to(model: Any, path: Any, *args: Any, **options: Any) -> Any:
        with h5_files.raising_errors():
            return original(model, path, *args, **options)

    return save


def write(model: Any, method: str, path: Any, args: tuple[Any, ...], options: dict[str, Any], everywhere: bool) -> Any:
    """Calls a Keras model's save, save_weights or export: on the master, or on all ranks with `everywhere`.

    The other ranks block until the master has written; the master waits for no rank. Raises on them
    tarantella.PeerLostError if the master failed, tarantella.MismatchError if it goes on without making this call.
    """
    full = named(path, method, args, options)

    def call() -> Any:
        if full is not path and "://" not in full:  # Keras 2 created a folder of that name and its parents
            os.makedirs(os.path.dirname(os.path.realpath(full)), exist_ok=True)
        return hooks.original(model, method)(full, *args, **options)

    return together(method, full, call, everywhere)


def together(
    method: str,
    path: Any,
    call: Callable[[], Any],
    everywhere: bool,
    follow: Callable[[], Any] = lambda: None,
    elsewhere: Callable[[], Any] | None = None,
) -> Any:
    """Runs `call` on the master, which writes `path`; the others wait for it, then return the result of `follow`.

    With `elsewhere`, a rank calls that if the master writes to another path instead, or nothing. Raises as `write`.
    """
    if everywhere or runtime.get_size() == 1:
        with written.by_every_rank():
            return call()
    what = f"{method} of {str(path)!r}"
    written.know(path)
    if not runtime.is_master_rank():
        told = _wait(what, method, elsewhere is not None)
        if told is None:
            if elsewhere is not None:
                return elsewhere()
            written.note_elsewhere(path)
        shared_files.await_file(path)
        return follow() if told != _NOTHING else None
    told = _FAILED
    try:
        with written.by_every_rank(), _naming(what):
            result = call()
        told = _NOTHING if result is None else _DONE
    finally:
        for name in (what, method):
            runtime.context().notify(name, told)
    return result


def _wait(what: str, method: str, may_save_elsewhere: bool) -> int | None:
    """The master's notification. None where it has saved elsewhere, or nothing if it `may_save_elsewhere`."""
    context, master = runtime.context(), runtime.get_master_rank()
    told: int | None = None
    try:
        told = context.wait_notification(master, what)
    except MismatchError as error:
        try:
            elsewhere = context.wait_notification(master, method)  # perhaps to another path
            told = elsewhere if elsewhere == _FAILED and not may_save_elsewhere else None
        except MismatchError:
            if not may_save_elsewhere:
                raise error from None
    if told == _FAILED:
        raise PeerLostError(f"rank {master} failed in {what}; its own error says why")
    return told


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Adds `what` to an error: the error of a full disk does not name the file."""
    try:
        yield
    except Exception as error:
        if not getattr(error, "__notes__", None):
            error.__notes__ = [f"in {what}"]  # type: ignore[attr-defined]  # add_note comes with Python 3.11
        raise


def named(path: Any, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The path with the suffix that Keras 3 requires, if an older program gives none. Logs a WARNING then."""
    if method not in SUFFIXES or not isinstance(path, (str, os.PathLike)) or os.path.splitext(os.fspath(path))[1]:
        return path
    if len(args) > 1 or "save_format" in options:  # arguments of Keras 2: Keras raises the error
        return path
    if options.get("zipped") is False or options.get("max_shard_size") is not None:  # a folder, shards
        return path
    full = os.fspath(path) + SUFFIXES[method][0]
    log.warn_once(f"{method}({os.fspath(path)!r}): Keras 3 needs a suffix, so the file is named {full!r}; use that")
    return full


def existing(path: Any, method: str) -> Any:
    """The name that `named` gave to the file, unless the path itself is something that Keras 3 can load."""
    if not isinstance(path, (str, os.PathLike)) or _is_of_keras_3(path):
        return path
    full = os.fspath(path) + SUFFIXES[method][0]
    return full if os.path.isfile(full) else path


def _is_of_keras_3(path: Any) -> bool:
    """Whether it is a file, a model folder or an Orbax checkpoint, as opposed to a SavedModel of Keras 2."""
    if not os.path.isdir(path):
        return os.path.exists(path)
    return any(name == "config.json" or name.isdigit() or "orbax" in name for name in os.listdir(path))


def _whole(path: Any, write_to: Callable[[str], Any]) -> Any:
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    # Hidden, so no `*.keras` glob matches it; always the same name, so the next save removes what a killed one left.
    beside = os.path.join(folder, f".{name}.partial.{runtime.get_rank()}")
    partial = os.path.join(beside, name)
    try:
        with _naming(f"save of {target!r}"):
            os.makedirs(beside, exist_ok=True)
            result = write_to(partial)
            _sync(partial)  # before the rename: if power is lost, the name may otherwise exist without the data
            os.replace(partial, target)
            try:
                _sync(folder)
            except OSError as error:  # no permission to read the folder, or a file system without fsync of folders
                if error.errno not in (errno.EACCES, errno.EINVAL, errno.ENOTSUP):
                    raise
    except OSError as error:
        if str(error.filename).startswith(beside):
            error.filename = target
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return result


def _sync(path: str) -> None:
    """Blocks until the contents of a file or folder are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_one_file(method: str, filepath: Any) -> bool:
    """Whether Keras can write to this path and writes a single file."""
    if not isinstance(filepath, (str, os.PathLike)) or "://" in os.fspath(filepath):
        return False
    path = os.fspath(filepath)
    return (
        path.endswith(SUFFIXES[method])
        and os.path.isdir(os.path.dirname(os.path.realpath(path)))
        and not os.path.isdir(path)
    )
