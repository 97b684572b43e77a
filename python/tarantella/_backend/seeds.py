"""One TensorFlow seed for all ranks: without it an unseeded shuffle differs from rank to rank."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .._job.environment import is_verified, layout
from .._job.log import logger

DEFAULT_SEED = 42


def set_default() -> None:
    """Gives TensorFlow a fixed global seed if the user has set none."""
    from tensorflow.python.eager import context

    if context.global_seed() is None:
        sys.modules["tensorflow"].random.set_seed(DEFAULT_SEED)
        logger.info(
            "shuffles without a seed use the default seed %d on every rank; tf.random.set_seed or "
            "keras.utils.set_random_seed choose another",
            DEFAULT_SEED,
        )


def arrange() -> None:
    """Sets the default seed, now or as soon as TensorFlow gets imported: on several ranks, and what they verify."""
    if layout().size == 1 and not is_verified():
        return
    if hasattr(sys.modules.get("tensorflow"), "random"):
        set_default()
    elif not any(isinstance(finder, _AfterTensorFlow) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTensorFlow())


class _AfterTensorFlow(importlib.abc.MetaPathFinder):
    """Runs `set_default` at the end of the first `import tensorflow`, then is gone. Looking for it changes nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tensorflow":
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
                    set_default()

            loader.exec_module = exec_module
        return spec
