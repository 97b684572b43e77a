"""`Snapshot`: asks `fit` to keep the state of training, from which a restart goes on at the same step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras

from ..._job import log


class Snapshot(keras.callbacks.Callback):
    """Keeps the state of training every so many steps. A restart goes on from the latest, in the middle of an epoch.

    The state is that of the model, its optimizer and metrics, random generators, callbacks and the position in the
    data: see docs/restart.md. The `fit` of a `tarantella.Model` acts on it.

    With a folder, SIGTERM or SIGUSR1 to any rank, or the end of the time limit, has all ranks take one more snapshot
    after the same step and end with exit code 75.

    Args:
        every: Steps from one snapshot to the next, at least 1.
        folder: Where snapshots are kept, in one file. It must be on storage that all hosts of the job share. Without
            one, the launcher keeps them in memory if it may restart the job (`--max-restarts`); otherwise there are
            none.
        time_limit: Seconds that each `fit` of the process may last. Needs a folder.

    Raises:
        ValueError: A bad `every` or `time_limit`.

    Example:
        >>> import tarantella as tnt
        >>> snapshots = tnt.keras.callbacks.Snapshot(every=100, folder="snapshots", time_limit=3600)
    """

    def __init__(
        self, every: int, folder: str | os.PathLike[str] | None = None, time_limit: float | None = None
    ) -> None:
        super().__init__()
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"Snapshot needs a number of steps, 1 or more: Snapshot(every=100) (got {every!r})")
        if time_limit is not None and (folder is None or not time_limit > 0):
            raise ValueError(f"Snapshot(time_limit=…) needs a folder, and seconds above 0 (got {time_limit!r})")
        self.every, self.time_limit = every, time_limit
        self.folder = None if folder is None else os.path.abspath(os.fspath(folder))
        self.is_known_to_fit = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Logs a warning in the `fit` of a plain Keras model, which takes no snapshots."""
        if not self.is_known_to_fit:
            log.warn_once("Snapshot keeps nothing of a plain Keras model: train tarantella.Model(model)")


def among(callbacks: Sequence[Any]) -> Snapshot | None:
    """The Snapshot among the callbacks of a fit, or None. Raises ValueError for several."""
    found = [each for each in callbacks if isinstance(each, Snapshot)]
    if len(found) > 1:
        raise ValueError("fit takes one Snapshot callback (got several)")
    return found[0] if found else None
