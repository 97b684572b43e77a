"""The master removes, moves and copies, for all ranks, the files that it has saved for them in callbacks."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from .._job import runtime
from . import hooks, written

_REMOVE = ((os, "remove"), (os, "unlink"), (shutil, "rmtree"))
_MOVE = (
    (os, "rename"),
    (os, "replace"),
    (shutil, "move"),
    (shutil, "copy"),
    (shutil, "copy2"),
    (shutil, "copyfile"),
    (shutil, "copytree"),
    (os, "symlink"),
    (os, "link"),
)


@contextlib.contextmanager
def by_master() -> Iterator[None]:
    """Inside this context, only the master removes, moves or copies what callbacks have left to the master to save.

    On the other ranks these functions of `os` and `shutil` return at once for such files and folders with them.
    """
    with contextlib.ExitStack() as hooked:
        for module, name in (*_REMOVE, *_MOVE):
            hooked.enter_context(hooks.hooking(module, name, functools.partial(_left_to_master, module, name)))
        yield


def _left_to_master(module: ModuleType, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    moves, copies = (module, name) in _MOVE, "copy" in name or "link" in name

    def act(*args: Any, **kwargs: Any) -> Any:
        source: Any = args[0] if args else kwargs.get("src", kwargs.get("path"))
        if kwargs.get("dir_fd") is not None or not written.is_left_to_master(source, copies):
            return original(*args, **kwargs)
        target = (args[1] if len(args) > 1 else kwargs.get("dst")) if moves else None
        result = written.by_master(target, lambda: original(*args, **kwargs))
        if runtime.is_master_rank() or module is os or target is None:
            return result
        return os.path.join(target, os.path.basename(source)) if os.path.isdir(target) else target

    return act
