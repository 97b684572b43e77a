"""Modules of the examples, which their programs find beside them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def modules_of(*folders: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Yields a function that imports a module by its name: these folders are in sys.path meanwhile.

    At the end their modules are forgotten, since others have the same names.
    """
    path, modules = list(sys.path), set(sys.modules)
    sys.path[:0] = map(str, folders)
    yield importlib.import_module
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        places = [folder / name.split(".")[0] for folder in folders]
        if any(place.is_dir() or place.with_suffix(".py").exists() for place in places):
            del sys.modules[name]
