"""A fit that keeps snapshots, and goes on from the latest.

After a restart the script runs from its start. A fit that was completed before returns its history at once. The one
that was cut short begins with the epoch of the snapshot. Keras's loop counts the steps that are done without a step of
the model, then the state is restored and training goes on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import tree

from ... import _exchange
from ..._backend import backend
from ..._job import log, report, runtime, timeline
from ...data.adapter import ShardedAdapter
from ...data.position import Order, ResumableBatches
from ..callbacks import backup
from ..callbacks.snapshot import Snapshot
from . import state
from .preemption import EXIT_CODE, Preemption
from .store import Content, Folder, Memory, parse


class Snapshots:
    """The snapshots of this process: where they are, and what was found there."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.found = _from_master(store)
        self.sequence = 0 if self.found is None else self.found.text["sequence"]
        self.completed: dict[str, Any] = {} if self.found is None else self.found.text["completed"]  # by number
        self._begun = 0  # fits of this process
        self._writing: threading.Thread | None = None
        self._error: OSError | None = None

    def begin_fit(self) -> int:
        """The number of a fit in the script: another attempt begins the same ones."""
        self._begun += 1
        return self._begun - 1

    def write(self, content: Content) -> None:
        """Writes a snapshot in another thread, after the one before, on the ranks that do."""
        self.wait()
        self.sequence += 1
        if self.store.is_written_here:
            content.text["sequence"] = self.sequence
            self._writing = threading.Thread(target=self._write, args=(content,), name="tarantella-snapshot")
            self._writing.start()

    def wait(self) -> bool:
        """Blocks until the latest snapshot is written, and returns whether it is. A WARNING says if it could not be."""
        if self._writing is not None:
            self._writing.join()
        self._writing, error, self._error = None, self._error, None
        if error is not None:
            log.warn_once(
                f"Snapshot: {self.store} has not taken one, so a restart goes on from an earlier one: {error}"
            )
        return error is None

    def _write(self, content: Content) -> None:
        try:
            self.store.write(content)
        except OSError as error:
            self._error = error
        else:
            report.send(report.PROGRESS, "")


_by_store: dict[str, Snapshots] = {}


def begin(
    model: Any,
    snapshot: Snapshot,
    callbacks: Sequence[Any | None],
    batches: ShardedAdapter,
    order: Callable[[], Order],
    build: Callable[[], None],
) -> Session | None:
    """What `fit` needs to keep snapshots, None where none can be kept. Collective.

    `callbacks` are the user's, with None for one that runs on other ranks only. `order` tells that of `batches`, and
    `build` creates what the model, losses and metrics keep. Raises ValueError on all ranks for a snapshot of another
    model or script, for data whose order cannot be repeated, and for a folder that hosts do not share.
    """
    snapshot.is_known_to_fit = True
    store = _store(snapshot)
    if store is None:
        return None
    known = order()
    if known.why_not_repeated:
        raise ValueError(f"Snapshot: after a restart, training would go on with other data: {known.why_not_repeated}")
    if str(store) not in _by_store:
        _by_store[str(store)] = Snapshots(store)
    if _by_store[str(store)].found is not None:
        build()
    return Session(model, snapshot, _by_store[str(store)], callbacks, batches, known)


def _store(snapshot: Snapshot) -> Any:
    if snapshot.folder is not None:
        backup.check_shared(snapshot.folder, "Snapshot")
        return Folder(snapshot.folder)
    memory = Memory.inherited()
    if memory is not None:
        return memory
    log.warn_once("Snapshot keeps nothing here: pass folder=…, or start with tarantella --max-restarts")
    return None


def _from_master(store: Any) -> Content | None:
    """The snapshot that the master reads, on all ranks. Collective. Raises ValueError on all if it is not whole."""
    raw, error = None, ""
    if runtime.is_master_rank():
        try:
            raw = store.read()
        except (OSError, ValueError) as unreadable:
            error = f"Snapshot: {store} cannot be used: {unreadable}"
    error = _exchange.gather_bytes(error.encode())[0].decode()
    if error:
        raise ValueError(error)
    found = _exchange.gather_bytes(raw or b"")[0]  # the other ranks have none
    return parse(found) if found else None


@functools.cache
def _script() -> str:
    """A hash of the program's main file, where there is one, and of its arguments."""
    source = b""
    with contextlib.suppress(OSError), open(sys.argv[0], "rb") as file:
        source = file.read()
    return hashlib.sha256(b"\0".join([source, *map(os.fsencode, sys.argv[1:])])).hexdigest()


class Session:
    """One fit with snapshots."""

    def __init__(
        self,
        model: Any,
        snapshot: Snapshot,
        snapshots: Snapshots,
        callbacks: Sequence[Any],
        batches: ShardedAdapter,
        order: Order,
    ) -> None:
        self._model, self._every, self._snapshots = model, snapshot.every, snapshots
        self._callbacks = [None if each is snapshot else each for each in callbacks]
        self._number, self._steps, self._step, self._epoch = snapshots.begin_fit(), 0, 0, 0
        self._due = False
        self._preemption = Preemption(snapshot.time_limit) if snapshot.folder else None
        self._latest: Any = None
        self._function: Any = None
        self._wrapped: Any = None
        self._seeds = list(order.seeds)
        self._resume_from = self._found()
        taken = self._resume_from.text["position"] if self._resume_from is not None else None
        self.batches = ResumableBatches(batches, taken, order)
        self._before = state.before_fit(self._callbacks)
        state.check_callbacks([each for each in self._callbacks if each is not None])

    def _found(self) -> Content | None:
        """The snapshot from which this fit goes on, or None."""
        found = self._snapshots.found
        if found is None:
            return None
        goes_on = found.text["fit"] == self._number and not found.text["is_complete"]
        if goes_on:
            state.check(self._model, found, str(self._snapshots.store))
        if found.text["script"] != _script():
            raise ValueError(
                f"Snapshot: {self._snapshots.store} has the training of another version of {sys.argv[0]!r}, or with "
                "other arguments; go on with these, or remove the snapshot to train from the beginning"
            )
        if not goes_on:
            return None
        if found.text["seeds"] != self._seeds:
            raise ValueError(
                "Snapshot: a shuffle of the data has another seed than when the training began; pass it a seed, so "
                "that it does not depend on what the script did before"
            )
        return found

    def _completed(self) -> Any:
        """The history of this fit if an earlier attempt has completed it, with the state at its end; else None."""
        record, found = self._snapshots.completed.get(str(self._number)), self._snapshots.found
        if record is None:
            return None
        self.batches.make_iterators(record["taken"])
        history = keras.callbacks.History()
        history.set_model(self._model)
        self._model.history = history
        state.set_history(self._model, record["history"])
        state.restore_end(self._callbacks, record["ranks"])
        if found is not None and found.text["fit"] == self._number:
            state.check(self._model, found, str(self._snapshots.store))
            state.restore(self._model, self._callbacks, found, within=False)
        is_latest = found is not None and found.text["fit"] == self._number
        until = "" if is_latest else "; until training goes on, its model has the weights that it was built with"
        log.notice("fit %d of this script was completed before%s", self._number + 1, until)
        return history

    def fit(self, method: Callable[..., Any], callbacks: Any, **options: Any) -> Any:
        """Keras's own method from here on, or the history of what an earlier attempt has completed. Collective."""
        completed = self._completed()
        if completed is not None:
            return completed
        if self._resume_from is not None:
            options["initial_epoch"] = self._resume_from.text["epoch"]
            state.continue_logs(self._callbacks)
        listed = _Callbacks(
            [_Events(self), *tree.flatten(getattr(callbacks, "callbacks", callbacks))],
            add_history=True,
            add_progbar=options["verbose"] != 0,
            verbose=options["verbose"],
            epochs=options["epochs"],
            steps=options["steps_per_epoch"] or self.batches.num_batches,
            model=self._model,
        )
        listed.session = self
        listening = contextlib.nullcontext() if self._preemption is None else self._preemption.listening()
        with listening:
            try:
                history = method(self.batches, callbacks=listed, **options)
            finally:
                if self._model.train_function is self._wrapped:  # not made anew, as after compile
                    self._model.train_function = self._function
            self._complete()
        return history

    def start(self) -> None:
        """Has the steps of this fit go through the session."""
        self._function = self._model.train_function
        self._wrapped = self._model.train_function = functools.partial(self._run_step, self._function)

    @property
    def is_skipping(self) -> bool:
        """Whether the next step was done before the restart."""
        return self._resume_from is not None and self._step < self._resume_from.text["step"]

    @property
    def has_resumed(self) -> bool:
        """Whether the model does its steps again."""
        return self._resume_from is None

    def begin_epoch(self, epoch: int) -> None:
        """Notes that an epoch begins."""
        self._epoch, self._step = epoch, 0

    def _run_step(self, function: Callable[[Any], Any], iterator: Any) -> Any:
        """What Keras's loop calls instead of the function of training steps."""
        per_call = self._model.steps_per_execution
        if self.is_skipping:
            self._step += per_call
            assert self._resume_from is not None
            return dict(self._resume_from.text["logs"])
        if self._resume_from is not None:
            iterator = self._resume(iterator)
        if self.batches.is_at_end:  # Keras does not count what was taken before the restart
            raise StopIteration
        stops = self._preemption is not None and self._preemption.agree(self._steps)
        if self._due or stops:
            self._take()
        if stops:
            self._stop()
        self._latest = function(iterator)
        self._step += per_call
        self._steps += per_call
        self.batches.take(per_call)
        self._due = self._steps % self._every < per_call
        return self._latest

    def _stop(self) -> None:
        if self._snapshots.wait():
            log.notice("the state of training is saved in %s: exit code %d", self._snapshots.store, EXIT_CODE)
        _exchange.gather_bytes(b"")  # the launcher gives the master little time once another rank has ended
        sys.exit(EXIT_CODE)

    @timeline.part("restore a snapshot")
    def _resume(self, iterator: Any) -> Any:
        found, self._resume_from = self._resume_from, None
        assert found is not None
        taken, begun = found.text["position"]["taken"][-1], time.monotonic()
        if taken and not self.batches.jumps:
            log.notice("reading %d batches again, without the model", taken)
        if taken:  # what reads them draws from the generators before these are restored
            _, iterator = backend.look_ahead(iterator, self._model.steps_per_execution)
        read = "" if self.batches.jumps or not taken else f"; reading took {time.monotonic() - begun:.1f} s"
        state.restore(self._model, self._callbacks, found, within=True)
        self._steps = found.text["steps"]
        self._latest = found.text["logs"]
        where = (self._epoch + 1, self._step + 1, self._snapshots.store)
        log.notice("training goes on from epoch %d, step %d, of %s%s", *where, read)
        return iterator

    @timeline.part("take a snapshot")
    def _take(self, is_complete: bool = False) -> None:
        self._due = False
        content = state.collect(
            self._model,
            self._callbacks,
            self._before,
            within=not is_complete,
            with_arrays=self._snapshots.store.is_written_here,
        )
        logs = self._latest if isinstance(self._latest, dict) and not is_complete else {}
        content.text.update(
            script=_script(),
            fit=self._number,
            is_complete=is_complete,
            completed={**self._snapshots.completed},
            epoch=self._epoch,
            step=self._step,
            steps=self._steps,
            logs={name: float(np.mean(np.asarray(value))) for name, value in logs.items()},
            position=self.batches.position(),
            seeds=self._seeds,
        )
        self._snapshots.write(content)

    def _complete(self) -> None:
        """Keeps the state at the end of the fit. Collective; blocks until it is written."""
        self._snapshots.completed[str(self._number)] = {
            "history": state.of_history(self._model, {}),
            "taken": self.batches.position()["taken"],
            "ranks": state.at_end(self._callbacks, self._before),
        }
        self._take(is_complete=True)
        if self._preemption is not None and self._preemption.agree(self._steps, is_last=True):
            self._stop()
        self._snapshots.wait()


class _Callbacks(keras.callbacks.CallbackList):
    """Keras's callbacks, without the steps that are only counted."""

    session: Session

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.session.is_skipping:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.session.has_resumed:
            super().on_train_batch_end(batch, logs)


class _Events(keras.callbacks.Callback):
    """Tells a session what Keras's loop begins."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def on_train_begin(self, logs: Any = None) -> None:
        self._session.start()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._session.begin_epoch(epoch)
