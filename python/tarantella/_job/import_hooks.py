"""Runs a function when a module is first imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def after_import(name: str, act: Callable[[Any], None]) -> None:
    """Calls `act(module)` at the end of the first import of the module `name`; now if it is imported already.

    Does nothing for a module of which the import has begun or is blocked, nor in further calls for a name that waits.
    `importlib.util.find_spec` does not trigger the call.
    """
    if name in sys.modules:
        module = sys.modules[name]
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            act(module)
    elif not any(isinstance(finder, _After) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _After(name, act))


class _After(importlib.abc.MetaPathFinder):
    """Calls a function at the end of one import, and removes itself."""

    def __init__(self, name: str, act: Callable[[Any], None]) -> None:
        self.name, self._act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        others: list[Any] = [each for each in sys.meta_path if each is not self]
        spec = next(filter(None, (each.find_spec(fullname, path, target) for each in others)), None)
        loader: Any = spec.loader if spec else None
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self._act(module)

            loader.exec_module = exec_module
        return spec
