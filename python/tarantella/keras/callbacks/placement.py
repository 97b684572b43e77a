"""Chooses the callbacks that run on each rank."""

from __future__ import annotations

import collections
import itertools
import os
import socket
from collections.abc import Sequence
from typing import Any

import keras
from keras import tree

from ... import _exchange
from ..._job import shared_files, timeline
from ..._job.environment import flag, integer, layout, prints_output
from ..._job.runtime import get_rank, is_master_rank
from .. import private
from . import WRITING, Callback, Snapshot, internal, is_one_of

# Callbacks that change the learning rate or the weights of their own rank during training.
_STEERING = ("LearningRateScheduler", "ReduceLROnPlateau", "SwapEMAWeights")
_TRAIN_BATCHES = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
_TEST_BATCHES = ("on_test_batch_begin", "on_test_batch_end")
_PREDICT_BATCHES = ("on_predict_batch_begin", "on_predict_batch_end")


def for_this_rank(callbacks: Any) -> list[Any]:
    """The user's callbacks that run on this rank."""
    return [_with_rank_folder(each) for each in _given(callbacks) if _runs_here(each)]


def in_order(callbacks: Any) -> list[Any]:
    """The user's callbacks in their order, None for one that does not run on this rank."""
    return [_inner(each) if _runs_here(each) else None for each in _given(callbacks)]


def snapshot_among(callbacks: Sequence[Any]) -> Snapshot | None:
    """The Snapshot among the callbacks of a fit, or None. Raises ValueError for several."""
    found = [each for each in callbacks if isinstance(each, Snapshot)]
    if len(found) > 1:
        raise ValueError("fit takes one Snapshot callback (got several)")
    return found[0] if found else None


def _given(callbacks: Any) -> list[Any]:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    return [_as_given(each) for each in tree.flatten(callbacks or []) if each is not None]


def _as_given(callback: Any) -> Any:
    """The callback, wrapped if TNT_TENSORBOARD_ON_ALL_DEVICES requires it."""
    inner = _inner(callback)
    if not isinstance(inner, keras.callbacks.TensorBoard) or not flag("TNT_TENSORBOARD_ON_ALL_DEVICES"):
        return callback
    return Callback(inner, isinstance(callback, Callback) and callback.aggregate_logs, run_on_all_ranks=True)


def _runs_here(callback: Any) -> bool:
    inner = _inner(callback)
    if isinstance(inner, keras.callbacks.ProgbarLogger):
        return prints_output()
    return _runs_everywhere(callback) or is_master_rank()


def _runs_everywhere(callback: Any) -> bool:
    return callback.run_on_all_ranks if isinstance(callback, Callback) else not is_one_of(callback, *WRITING)


def _with_rank_folder(callback: Any) -> Any:
    """The callback; a TensorBoard on all ranks now writes to a folder of this rank's."""
    inner, own = _inner(callback), f"rank_{get_rank()}"
    is_on_all = isinstance(inner, keras.callbacks.TensorBoard) and _runs_everywhere(callback)
    if is_on_all and os.path.basename(inner.log_dir) != own:
        inner.log_dir = os.path.join(inner.log_dir, own)
    return callback


@timeline.part("place callbacks")
def callbacks_of_rank(model: Any, callbacks: Any) -> list[Any]:
    """This rank's callbacks together with the internal ones. Collective; callbacks may differ between ranks.

    Raises ValueError on all ranks if two ranks would write the same file, if a callback that changes the learning rate
    or the weights is missing on some ranks, or if hosts do not share a backup from which a restart shall go on.
    """
    given = _given(callbacks)
    local = [_with_rank_folder(each) for each in given if _runs_here(each)]
    inner = [_inner(each) for each in local]
    writing = [each for each in inner if is_one_of(each, *WRITING)]
    steering = [each for each in inner if is_one_of(each, *_STEERING) or isinstance(each, Snapshot)]
    wants = {
        "stop_training": any(_may_stop_training(each) for each in inner),
        "stop_evaluating": any(_is_user_defined(each) and _overrides(each, *_TEST_BATCHES) for each in inner),
        "saves": any(private.saves_on_batches(each) for each in inner),
        "aggregates": any(isinstance(each, Callback) and each.aggregate_logs and _sees_batches(each) for each in local),
    }
    wanted, kinds, backups, paths, steer = _of_all_ranks(
        wants,
        [type(each).__qualname__ for each in inner if not is_one_of(each, *WRITING)],
        [os.fspath(each.backup_dir) for each in inner if is_one_of(each, "BackupAndRestore")],
        list({path for each in writing for path in _paths(each)}),
        [type(each).__qualname__ for each in steering],
    )
    _check_steering(steer)
    for folder in backups[0]:
        check_shared(folder, "BackupAndRestore")
    for path, writers in collections.Counter(itertools.chain(*paths)).items():
        if writers > 1:
            raise ValueError(f"several ranks would write {path!r}; put tarantella.get_rank() into the path")
    first: list[Any] = [internal.AverageBeforeSaving(inner)] if "saves" in wanted else []
    if "aggregates" in wanted:
        first.append(internal.GlobalLogs())
    for each in local:
        if isinstance(each, Callback):
            each.global_logs = first[-1] if each.aggregate_logs and "aggregates" in wanted else None
    differ = any(each != kinds[0] for each in kinds)
    placed = [every for each in given for every in (each, _counter(each)) if every is not None and _runs_here(every)]
    return [*first, *placed, internal.Agreement(any(backups), differ, wanted & internal.STOP_FLAGS.keys())]


def _counter(callback: Any) -> Any:
    """The counter of the checkpoints of a callback that writes on the master only, on every rank; else None."""
    counts = is_one_of(_inner(callback), "ModelCheckpoint") and not _runs_everywhere(callback)
    return internal.CheckpointCounter(_inner(callback)) if counts else None


def _check_steering(names: list[list[str]]) -> None:
    """Raises ValueError unless all ranks have the same callbacks; `names` are those of each rank."""
    for name in dict.fromkeys(name for each in names for name in each):
        counts = [each.count(name) for each in names]
        if min(counts) < max(counts):
            fewer = [str(rank) for rank, count in enumerate(counts) if count < max(counts)]
            more = [str(rank) for rank, count in enumerate(counts) if count == max(counts)]
            raise ValueError(
                f"the callback {name} is passed on rank {', '.join(more)} but not on rank {', '.join(fewer)}: "
                "it changes the training of its own rank only; pass it on all ranks"
            )


@timeline.part("place callbacks")
def arrange_to_predict(callbacks: Any) -> list[Any]:
    """Like `callbacks_of_rank`, for predict."""
    local = for_this_rank(callbacks)
    stops = any(_is_user_defined(each) and _overrides(each, *_PREDICT_BATCHES) for each in map(_inner, local))
    wanted, *_ = _of_all_ranks({"stop_predicting": stops, "sees outputs": bool(local)})
    agreement = internal.Agreement(stop_flags=wanted & internal.STOP_FLAGS.keys())
    return [internal.OwnOutputs(), *local, agreement] if wanted else []


def _of_all_ranks(wants: dict[str, bool], *lists: list[str]) -> Any:
    """The names of what any rank wants, and for each of the lists those of all ranks, in rank order. Collective."""
    everyone = _exchange.gather_json([[name for name in wants if wants[name]], *lists])
    wanted, *lists_of_ranks = zip(*everyone, strict=True)
    return {*itertools.chain(*wanted)}, *lists_of_ranks


def _inner(callback: Any) -> Any:
    return callback.keras_callback if isinstance(callback, Callback) else callback


def _overrides(callback: Any, *names: str) -> bool:
    default = keras.callbacks.Callback
    return any(getattr(getattr(callback, name), "__func__", None) is not getattr(default, name) for name in names)


def _sees_batches(callback: Callback) -> bool:
    return _overrides(callback.keras_callback, "on_batch_end", "on_train_batch_end", "on_test_batch_end")


def _is_user_defined(callback: Any) -> bool:
    """Whether it is user-defined, so that it may stop for any reason."""
    return not private.is_of_keras(type(callback)) or is_one_of(callback, "LambdaCallback")


def _may_stop_training(callback: Any) -> bool:
    """Whether it may stop training after a batch. TerminateOnNaN does, depending on the logs of its rank."""
    return is_one_of(callback, "TerminateOnNaN") or (
        _is_user_defined(callback) and _overrides(callback, *_TRAIN_BATCHES)
    )


def _paths(callback: Any) -> list[str]:
    names = ("filepath", "filename", "log_dir", "directory")
    return [os.fspath(getattr(callback, name)) for name in names if getattr(callback, name, None) is not None]


def check_shared(folder: str, callback: str) -> None:
    """Raises ValueError on all ranks if a host does not share the folder, where the launcher may start the job again.

    After the loss of the master's host, another host would have to go on from it. Collective; blocks for up to
    `shared_files.SEEN_WITHIN` seconds.
    """
    place = layout()
    if len(place.nodes) == 1 or not integer("TNT_MAX_RESTARTS", 0) or "://" in folder:
        return
    probe = os.path.join(os.path.abspath(folder), f".tarantella-{place.job[:16]}")
    if place.rank == 0:
        os.makedirs(folder, exist_ok=True)
        with open(probe, "w"):
            pass
    _exchange.gather_bytes(b"")  # from here on it is there
    is_missing = place.local_rank == 0 and not shared_files.appears(probe)
    without = _exchange.gather_bytes(socket.gethostname().encode() if is_missing else b"")
    if place.rank == 0:
        os.remove(probe)
    hosts = ", ".join(sorted({each.decode() for each in without if each}))
    if hosts:
        raise ValueError(
            f"{callback}: the folder {folder!r} of rank 0 is not shared with {hosts}, so that a restart after "
            "the loss of a host could not go on from it (--max-restarts); use a folder that all hosts share"
        )
