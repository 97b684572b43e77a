"""KerasTuner on several ranks: all search one space in one order, from one state of one folder."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from typing import Any

from .. import _exchange
from .._job import runtime
from .._job.errors import MismatchError
from . import hooks, private


def install(keras_tuner: Any) -> None:
    """Has the master begin or empty a tuner's folder, and all ranks begin with the master's state."""
    hooks.hook(keras_tuner.engine.base_tuner.BaseTuner, "__init__", _made_together)


def _made_together(original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    def init(tuner: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(tuner, *args, **kwargs)
        if runtime.is_master_rank():
            original(*given.args, **given.kwargs)
        mine = json.dumps(tuner.oracle.get_state()) if runtime.is_master_rank() else ""
        state = json.loads(_exchange.gather_bytes(mine.encode())[runtime.get_master_rank()])
        if not runtime.is_master_rank():
            given.arguments["overwrite"] = False  # the master has emptied it
            original(*given.args, **given.kwargs)
            tuner.oracle.set_state(state)
            private.draw_alike(tuner.oracle)
        folders = [each.decode() for each in _exchange.gather_bytes(os.path.abspath(tuner.project_dir).encode())]
        for rank, folder in enumerate(folders):
            if folder != folders[0]:
                raise MismatchError(
                    f"the tuner of rank {rank} has the folder {folder!r}, that of rank 0 {folders[0]!r}: give all "
                    "ranks the same directory and project_name, no tempfile, time or process number"
                )

    return init
