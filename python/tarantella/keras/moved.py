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
)
# Those that put a file into a folder if they are given one.
_INTO_FOLDERS = ("move", "copy", "copy2")


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
    moves = (module, name) in _MOVE

    def act(*args: Any, **kwargs: Any) -> Any:
        paths = [*args, *kwargs.values()]
        if not paths or kwargs.get("dir_fd") is not None or not written.is_left_to_master(paths[0]):
            return original(*args, **kwargs)
        target = paths[1] if moves else None
        if name in _INTO_FOLDERS and os.path.isdir(paths[1]):
            target = os.path.join(paths[1], os.path.basename(paths[0]))
        result = written.by_master(target, lambda: original(*args, **kwargs))
        return result if runtime.is_master_rank() or module is os else target

    return act
