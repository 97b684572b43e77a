"""`tarantella.keras.callbacks`: `Callback`, which chooses the logs and ranks of a callback, and `Snapshot`."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import keras

from ..._job import log
from .. import private, written
from . import internal

__all__ = ["Callback", "Snapshot"]

WRITING = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "OrbaxCheckpoint", "RemoteMonitor", "TensorBoard")


def is_one_of(callback: Any, *names: str) -> bool:
    """Whether it is one of these callbacks of Keras or a subclass. Not every Keras version has all of them."""
    return any(private.is_of_keras(kind) and kind.__name__ in names for kind in type(callback).__mro__)


class Callback(keras.callbacks.Callback):
    """Wraps a callback to choose the logs that it sees and the ranks it runs on. Has no effect with one rank.

    Args:
        keras_callback: A callback of Keras or of your own.
        aggregate_logs: If True, the callback sees global logs after every batch too. This costs an exchange and the
            results of all metrics after every batch. If False, it sees the rank's own logs, as without the wrapper.
        run_on_all_ranks: True for every rank, False for the master only. The default, None, means False for Keras's
            callbacks that write or send. It means True for all others, but where these save the model, only the master
            writes. If you pass True, each rank saves, so put the rank into the file name. TensorBoard on all ranks
            writes to the folders rank_0, rank_1, … in its log_dir.

    Raises:
        TypeError: It is no Keras callback.
        ValueError: It is already wrapped, or it is BackupAndRestore on all ranks, which would overwrite each other's
            backup.

    Example:
        >>> import keras, tarantella as tnt
        >>> stops = tnt.keras.callbacks.Callback(keras.callbacks.TerminateOnNaN(), run_on_all_ranks=True)
    """

    def __init__(self, keras_callback: Any, aggregate_logs: bool = True, run_on_all_ranks: bool | None = None) -> None:
        super().__init__()
        if not isinstance(keras_callback, keras.callbacks.Callback):
            raise TypeError(f"Callback needs a keras.callbacks.Callback (got {type(keras_callback).__name__})")
        if isinstance(keras_callback, (Callback, keras.callbacks.CallbackList)):
            raise ValueError("Callback needs a single Keras or user-defined callback, not one that is already wrapped")
        if run_on_all_ranks and is_one_of(keras_callback, "BackupAndRestore"):
            raise ValueError(
                "BackupAndRestore cannot run on all ranks: they would overwrite each other's backup; leave "
                "run_on_all_ranks out, and the master writes while all ranks restore"
            )
        self.keras_callback = keras_callback
        self.aggregate_logs = aggregate_logs
        self.run_on_all_ranks = (
            not is_one_of(keras_callback, *WRITING) if run_on_all_ranks is None else run_on_all_ranks
        )
        self.global_logs: internal.GlobalLogs | None = None
        self._saves_here = bool(run_on_all_ranks)

    def set_model(self, model: Any) -> None:
        """Called by Keras before training, as the other methods are; sets the model of the wrapped callback."""
        self.keras_callback.set_model(model)

    def set_params(self, params: Any) -> None:
        """Sets the parameters of the wrapped callback."""
        self.keras_callback.set_params(params)

    @property
    def model(self) -> Any:
        """The model of the wrapped callback."""
        return self.keras_callback.model

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Calls the method of the wrapped callback, with global logs if `aggregate_logs` is set."""
        self._call("on_train_batch_end", batch, self._seen(logs))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Calls the method of the wrapped callback, with global logs if `aggregate_logs` is set."""
        self._call("on_test_batch_end", batch, self._seen(logs))

    def _seen(self, logs: Any) -> Any:
        return logs if self.global_logs is None or self.global_logs.logs is None else dict(self.global_logs.logs)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> None:
        with written.by_every_rank() if self._saves_here else contextlib.nullcontext():
            getattr(self.keras_callback, name)(*args, **kwargs)


def _forwarded(name: str) -> Any:
    def forward(self: Callback, *args: Any, **kwargs: Any) -> None:
        self._call(name, *args, **kwargs)

    return forward


for _name in dir(keras.callbacks.Callback):
    if _name.startswith("on_") and _name not in vars(Callback):
        setattr(Callback, _name, _forwarded(_name))


class Snapshot(keras.callbacks.Callback):
    """Saves the state of training every `every` steps. A restart resumes from the latest one, also within an epoch.

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
            log.warn_once("Snapshot saves nothing of a plain Keras model: train tarantella.Model(model)")
