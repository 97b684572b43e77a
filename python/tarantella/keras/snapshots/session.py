"""A fit that takes snapshots, and resumes from the latest.

After a restart the script runs from its start. A fit that was completed before returns its history at once. The
interrupted one begins with the epoch of the snapshot: Keras's loop skips the steps that are done, then the state is
restored and training resumes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import tree

from ... import _exchange
from ..._backend import backend
from ..._job import log, timeline
from ...data.adapter import ShardedAdapter
from ...data.position import Order, ResumableBatches
from ..callbacks import Snapshot
from . import state
from .preemption import EXIT_CODE, Preemption
from .store import Content, Snapshots, store_of


def begin(
    model: Any,
    snapshot: Snapshot,
    callbacks: Sequence[Any | None],
    batches: ShardedAdapter,
    order: Callable[[], Order],
    build: Callable[[], None],
) -> Session | None:
    """The session of a `fit` that takes snapshots, None where there is no place for them. Collective.

    `callbacks` are the user's, with None for one that runs on other ranks only. `order` tells that of `batches`, and
    `build` creates what the model, losses and metrics keep. Raises ValueError on all ranks for a snapshot of another
    model or script, for data whose order cannot be repeated, and for a folder that hosts do not share.
    """
    snapshot.is_known_to_fit = True
    store = store_of(snapshot)
    if store is None:
        return None
    known = order()
    if known.why_not_repeated:
        raise ValueError(f"Snapshot: after a restart, training would resume with other data: {known.why_not_repeated}")
    snapshots = Snapshots.of(store)
    if snapshots.found is not None:
        build()
    return Session(model, snapshot, snapshots, callbacks, batches, known)


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
        self._number, self._steps, self._step, self._epoch = next(snapshots.numbers), 0, 0, 0
        self._due = False
        self._preemption = Preemption(snapshot.time_limit) if snapshot.folder else None
        self._latest: Any = None
        self._function: Any = None
        self._wrapped: Any = None
        self._seeds = list(order.seeds)
        self._found = self._checked(snapshots.found)
        self._resume_from = None if self._found is None or self._found.text["is_complete"] else self._found
        taken = self._resume_from.text["position"] if self._resume_from is not None else None
        self.batches = ResumableBatches(batches, taken, order)
        # None is asked for its state: it may have none before training.
        not_asked = [None if hasattr(each, "get_state") else each for each in self._callbacks]
        self._before = state.callback_states(not_asked, {}, {})
        state.check_callbacks(self._callbacks)

    def _checked(self, found: Content | None) -> Content | None:
        """The snapshot if it is of this fit. Raises ValueError for one of another model, script or order of data."""
        if found is None:
            return None
        is_of_this = found.text["fit"] == self._number
        if is_of_this:
            state.check(self._model, found, str(self._snapshots.store))
        if found.text["script"] != _script():
            raise ValueError(
                f"Snapshot: {self._snapshots.store} is from another version of {sys.argv[0]!r} or from other "
                "arguments; run it with these, or remove the snapshot to train from the beginning"
            )
        if is_of_this and not found.text["is_complete"] and found.text["seeds"] != self._seeds:
            raise ValueError(
                "Snapshot: the seed of a shuffle differs from that of the snapshot's training; pass a seed to the "
                "shuffle, so that it does not depend on what the script did before"
            )
        return found if is_of_this else None

    def _completed(self) -> Any:
        """The history of this fit if an earlier attempt has completed it, with the state at its end; else None."""
        record = self._snapshots.completed.get(str(self._number))
        if record is None:
            return None
        self.batches.make_iterators(record["taken"])
        history = keras.callbacks.History()
        history.set_model(self._model)
        self._model.history = history
        state.set_history(self._model, record["history"])
        state.restore_end(self._callbacks, record["ranks"])
        if self._found is not None:
            state.restore(self._model, self._callbacks, self._found, within=False)
        until = "" if self._found else "; until training resumes, its model has the weights that it was built with"
        log.notice("fit %d of this script was completed before%s", self._number + 1, until)
        return history

    def fit(self, method: Callable[..., Any], callbacks: Any, **options: Any) -> Any:
        """Runs Keras's own method, or returns the history of a fit that an earlier attempt completed. Collective."""
        completed = self._completed()
        if completed is not None:
            return completed
        if self._resume_from is not None:
            options["initial_epoch"] = self._resume_from.text["epoch"]
            for each in self._callbacks:
                if isinstance(each, keras.callbacks.CSVLogger):
                    each.append = True
        listed = _Callbacks(
            tree.flatten(getattr(callbacks, "callbacks", callbacks)),
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
                if self._model.train_function is self._wrapped:  # not made again, as after compile
                    self._model.train_function = self._function
            self._complete()
        return history

    def start(self) -> None:
        """Puts `_run_step` around the function of training steps."""
        self._function = self._model.train_function
        self._wrapped = self._model.train_function = functools.partial(self._run_step, self._function)

    def begin_epoch(self, epoch: int) -> None:
        """Notes that an epoch begins."""
        self._epoch, self._step = epoch, 0

    @property
    def has_resumed(self) -> bool:
        """Whether the model does its steps again."""
        return self._resume_from is None

    @property
    def is_skipping(self) -> bool:
        """Whether the next step was done before the restart."""
        return self._resume_from is not None and self._step < self._resume_from.text["step"]

    def _run_step(self, function: Callable[[Any], Any], iterator: Any) -> Any:
        """Runs, skips or resumes a step; takes a snapshot or stops before it where that is due."""
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
        if taken and not self.batches.is_seekable:
            log.notice("reading %d batches again, without the model", taken)
        if taken:  # what reads them draws from the generators before these are restored
            _, iterator = backend.peek(iterator, self._model.steps_per_execution)
        read = "" if self.batches.is_seekable or not taken else f"; reading took {time.monotonic() - begun:.1f} s"
        state.restore(self._model, self._callbacks, found, within=True)
        self._steps = found.text["steps"]
        self._latest = found.text["logs"]
        where = (self._epoch + 1, self._step + 1, self._snapshots.store)
        log.notice("training resumes from epoch %d, step %d, of %s%s", *where, read)
        return iterator

    @timeline.part("take a snapshot")
    def _take(self, is_complete: bool = False) -> None:
        self._due = False
        with_arrays = self._snapshots.store.is_written_here
        content = state.collect(self._model, self._callbacks, self._before, not is_complete, with_arrays)
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

    def on_train_begin(self, logs: Any = None) -> None:
        self.session.start()
        super().on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.session.begin_epoch(epoch)
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.session.is_skipping:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.session.has_resumed:
            super().on_train_batch_end(batch, logs)
