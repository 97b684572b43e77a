"""`tarantella.keras.callbacks`: `Callback`, which chooses the logs that a callback sees and the ranks it runs on."""

from __future__ import annotations

import contextlib
from typing import Any

import keras

from .. import private, written
from . import internal
from .snapshot import Snapshot

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
