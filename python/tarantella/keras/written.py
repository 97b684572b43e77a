"""Files that the master saves, removes and moves for all ranks in callbacks. Others wait where they load them."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import keras

from .. import _exchange
from .._job import log, runtime, shared_files
from .._job.environment import number
from .._job.errors import Error
from . import hooks, private

# Saves by path: on the master what it has written, on others what they have left to it.
_saves: dict[str, int] = {}
# The paths of the latest saves, in order, since ranks compared them; how many there were before.
_order: list[str] = []
_before = 0
_everywhere: contextvars.ContextVar[bool] = contextvars.ContextVar("tarantella_everywhere", default=False)
# Patterns of the paths to which callbacks save that run on the master only, and how often these have run.
_patterns: set[str] = set()
_checkpoints = 0
_OF_MODELS = (".keras", ".h5", ".hdf5")
_BEGIN = time.time()  # of the job, about
# Seconds until a rank takes it that its path is not the master's.
_PATIENCE = 10.0


def _key(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else ""


@contextlib.contextmanager
def by_every_rank() -> Iterator[None]:
    """Inside this context, `by_master` acts on the rank that calls it."""
    token = _everywhere.set(True)
    try:
        yield
    finally:
        _everywhere.reset(token)


def is_by_every_rank() -> bool:
    """Whether this is inside of `by_every_rank`."""
    return _everywhere.get()


def by_master(path: Any, call: Callable[[], Any]) -> Any:
    """Calls on the master, which writes `path` (None: removes something), and notes that on all ranks. Never blocks.

    What it calls may come here again, and then acts at once. Returns None on the other ranks.
    """
    if _everywhere.get():
        return call()
    try:
        with by_every_rank():
            return call() if runtime.is_master_rank() else None
    finally:
        if path is not None:  # also where it has failed, which the user may catch: the others do not know
            _note(path)


def is_left_to_master(path: Any, copies: bool = False) -> bool:
    """Whether the job's models or callbacks have saved this path, a folder that it is in, or a path in this folder.

    True also for a model's file that is older than the job, which no rank can have written for itself, unless it is
    only copied: one of an earlier run, that a callback clears away.
    """
    key = _key(path)
    if not key:
        return False
    inside, above = key + os.sep, _and_above(key)
    if _is_checkpoint(key) or any(each in above or each.startswith(inside) for each in _saves):
        return True
    return not copies and key.endswith(_OF_MODELS) and _is_older_than_job(key)


def _and_above(key: str) -> list[str]:
    """The path, and the folders that it is in, nearest first."""
    return [key, *map(str, Path(key).parents)]


def _is_older_than_job(key: str) -> bool:
    """True also for a file that is not there: the master may have removed it since this rank saw it."""
    try:
        return os.stat(key).st_mtime < _BEGIN
    except FileNotFoundError:
        return True
    except OSError:
        return False


def know(path: Any) -> None:
    """Notes that the master writes this path, without a save that others wait for."""
    _saves.setdefault(_key(path), 0)


def expect_checkpoints(pattern: Any) -> None:
    """Notes a path, with fields in braces, to which a callback saves that runs on the master only."""
    _patterns.add(re.sub(r"\\\{.*?\\\}", ".*", re.escape(_key(pattern))))


def count_checkpoint() -> None:
    """Counts a run of such a callback, on all ranks; on the master after it has run."""
    global _checkpoints
    _checkpoints += 1
    if runtime.is_master_rank():
        runtime.context().notify("checkpoints", _checkpoints)


def _is_checkpoint(key: str) -> bool:
    return any(re.fullmatch(pattern, key) for pattern in _patterns)


def _note(path: Any) -> None:
    """Notes a save: on the master, which has written, and tells the others; on others, which leave it to the master."""
    if runtime.get_size() == 1:
        return
    key = _key(path)
    _saves[key] = _saves.get(key, 0) + 1
    _order.append(key)
    if runtime.is_master_rank():
        runtime.context().notify(f"saved {key}", _saves[key])
        runtime.context().notify(f"save {_before + len(_order)}", zlib.crc32(key.encode()))


def note_elsewhere(path: Any) -> None:
    """Notes that the master has saved to another path in the place of this one of another rank."""
    _saves[_key(path)] = 0  # it waits for none, and is explained where it is not there


def hook_loading() -> None:
    """Has Keras's functions that load wait for the master. Idempotent."""
    for module in (keras.models, keras.saving, private.saving_api):
        hooks.hook(module, "load_model", functools.partial(_loading, 0))
    hooks.hook(private.saving_api, "load_weights", functools.partial(_loading, 1))


def _loading(place: int, original: Callable[..., Any]) -> Callable[..., Any]:
    def load(*args: Any, **kwargs: Any) -> Any:
        await_written(args[place] if len(args) > place else kwargs.get("filepath"))
        return original(*args, **kwargs)

    return load


def await_written(path: Any) -> None:
    """Blocks until the master has saved this path as often as this rank has left it to the master.

    Raises FileNotFoundError where it is not there then, as with a path of this rank's own; tarantella.Error where the
    master has not saved for TNT_TIMEOUT seconds, or the job has failed.
    """
    key = _key(path)
    if runtime.get_size() == 1 or runtime.is_master_rank():
        return
    key = next((each for each in _and_above(key) if each in _saves), key)  # it may be in a folder that was moved
    if key not in _saves and not _is_checkpoint(key):
        return
    context, master = runtime.context(), runtime.get_master_rank()
    begin, limit, is_said = time.monotonic(), number("TNT_TIMEOUT", 300), False
    while not _is_saved(key):
        waited = time.monotonic() - begin
        if waited > 1 and not is_said:
            is_said = True
            log.logger.info("rank %d waits until rank 0 has saved %r", runtime.get_rank(), key)
        if waited > min(limit, _PATIENCE) and _is_other_saved(key):
            break
        if waited > limit:
            raise Error(
                f"rank 0 has not saved {key!r}, for which rank {runtime.get_rank()} waits; save it on all ranks"
            )
        time.sleep(0.01)
    shared_files.await_file(key)
    if key not in _saves or os.path.exists(key):
        return
    if context.find_notification(master, f"saved {key}") is not None:
        raise FileNotFoundError(
            f"{key!r} does not exist: rank 0 has removed it before rank {runtime.get_rank()} has loaded it; remove it "
            "in a later call of the callback"
        )
    raise FileNotFoundError(
        f"{key!r} does not exist: when all ranks save, only rank 0 writes, and it has saved to another path; use "
        "the same path on all ranks (made on one of them, or from what all know: no tempfile, time or process "
        "number), or write on every rank: tnt_save_all_ranks=True, or run_on_all_ranks=True of a callback"
    )


def _is_saved(key: str) -> bool:
    """Whether the master has saved the path as often as this rank has left it to the master."""
    if key not in _saves:
        count = runtime.context().find_notification(runtime.get_master_rank(), "checkpoints")
        return _checkpoints == 0 or (count is not None and count >= _checkpoints)
    if key not in _order:  # ranks have synchronized since, or it was saved elsewhere
        return True
    count = runtime.context().find_notification(runtime.get_master_rank(), f"saved {key}")
    return count is not None and count >= _saves[key]


def _is_other_saved(key: str) -> bool:
    """Whether the master has never saved the path, and another one in the place of it, as far as saves correspond."""
    context, master = runtime.context(), runtime.get_master_rank()
    place = _before + len(_order) - _order[::-1].index(key)
    instead = context.find_notification(master, f"save {place}")
    return context.find_notification(master, f"saved {key}") is None and instead not in (None, zlib.crc32(key.encode()))


def compare() -> None:
    """Warns of paths that differ from the master's. All that was saved before is there when it returns. Collective."""
    global _before
    everyone = _exchange.gather_json(_order)
    _before += len(_order)
    _order.clear()
    for rank, paths in enumerate(everyone):
        others = [each for each in paths if each not in everyone[0]]
        if others and everyone[0]:
            local = everyone[0][min(paths.index(others[0]), len(everyone[0]) - 1)]
            log.warn_once(
                f"rank {rank} saves to {others[0]!r}, but rank 0, which alone writes, to {local!r}: use the same path "
                "on all ranks"
            )


_REMOVE = ("remove", "unlink", "rmtree")
_MOVE = ("rename", "replace", "move")
_OF_FILES: dict[ModuleType, tuple[str, ...]] = {
    os: ("remove", "unlink", "rename", "replace", "symlink", "link"),
    shutil: ("rmtree", "move", "copy", "copy2", "copyfile", "copytree"),
}


@contextlib.contextmanager
def moving_by_master() -> Iterator[None]:
    """Inside this context, only the master removes, moves or copies files that callbacks leave to it to save.

    On the other ranks these functions of `os` and `shutil` return at once for such files and folders with them. An
    error about a file that is there, or is not, says who writes.
    """
    with contextlib.ExitStack() as hooked:
        for module, names in _OF_FILES.items():
            for name in names:
                hooked.enter_context(hooks.hooking(module, name, functools.partial(_left_to_master, module, name)))
        try:
            yield
        except (FileNotFoundError, FileExistsError) as error:
            if (_saves or _patterns) and not getattr(error, "__notes__", None):
                error.__notes__ = [  # type: ignore[union-attr]
                    "callbacks run on all ranks, but only rank 0 writes what they save, and the others do not wait for "
                    "it: read, make and remove such files on one rank (tarantella.is_master_rank()), or load them with "
                    "Keras"
                ]
            raise


def _left_to_master(module: ModuleType, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    has_target, copies = name not in _REMOVE, name not in (*_REMOVE, *_MOVE)

    def act(*args: Any, **kwargs: Any) -> Any:
        source: Any = args[0] if args else kwargs.get("src", kwargs.get("path"))
        if kwargs.get("dir_fd") is not None or not is_left_to_master(source, copies):
            return original(*args, **kwargs)
        target = (args[1] if len(args) > 1 else kwargs.get("dst")) if has_target else None
        result = by_master(target, lambda: original(*args, **kwargs))
        if runtime.is_master_rank() or module is os or target is None:
            return result
        return os.path.join(target, os.path.basename(source)) if os.path.isdir(target) else target

    return act
