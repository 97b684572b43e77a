"""Keeps the cores of a rank from going idle while a model trains, where this makes its steps faster.

A core that went idle in a wait may be slow afterwards. Machines differ: on some of them steps take much longer, on
others keeping cores awake costs more than it brings. So the first steps of a model are timed both ways.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from ... import _exchange
from ..._job import awake, log, runtime
from .. import training

# A window takes so long, within these limits of its steps; the one before them is not timed. The speed of a machine
# drifts, so long windows compare worse than short ones.
_SECONDS = 0.2
_LEAST_STEPS, _MOST_STEPS = 2, 8
# Whether cores are kept awake; in an order that cancels a steady change. A jump spoils one turn of three.
_TURN, _TURNS = (False, True, True, False), 3
_WINDOWS = _TURN * _TURNS
_LEAST_GAIN = 1.03


def _on_all_ranks(seconds: list[float]) -> list[float]:
    """The sums over the ranks. Collective."""
    return list(runtime.context().allreduce(np.array(seconds), "seconds of a step with cores kept awake and without"))


class Trial:
    """Times windows of steps with cores kept awake and without, in turn, then chooses. One for each model.

    A first window tells how many steps the others have. All ranks count the same steps, so they try the same at the
    same time, and they choose together. Windows go on in the next epoch and the next fit.
    """

    # The most until it chooses, and one for each epoch that ends among them.
    STEPS = _LEAST_STEPS + 1 + len(_WINDOWS) * (_MOST_STEPS + 1)

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        on_all_ranks: Callable[[list[float]], list[float]] = _on_all_ranks,
    ) -> None:
        self.choice: bool | None = None  # None until all windows are timed
        self._clock, self._began, self._last, self._steps = clock, 0.0, 0.0, 0
        self._on_all_ranks = on_all_ranks
        self._paused = False
        self._shortest: float | None = math.inf  # step of the first window; None once that has ended
        self._window = _LEAST_STEPS  # in steps
        self._means: list[float] = []  # seconds of a step, by window after the first one

    def pause(self) -> None:
        """Call this before an epoch: the last step and what followed it, validation for one, are not timed."""
        self._paused = True

    def before_step(self) -> bool:
        """Returns whether cores are to be kept awake from now on."""
        if self.choice is None:
            now = self._clock()
            if self._paused and self._steps > 1:
                self._began += now - self._last
                self._steps -= 1
            elif self._shortest is not None and self._steps > 1:
                self._shortest = min(self._shortest, now - self._last)
            self._last, self._paused = now, False
            if self._steps == self._window + 1:
                self._end_window((now - self._began) / self._window)
                self._steps = 0
            if self._steps == 1:
                self._began = now
            self._steps += 1
            if len(self._means) == len(_WINDOWS):
                self._choose()
        return _WINDOWS[len(self._means)] if self.choice is None else self.choice

    def _end_window(self, mean: float) -> None:
        if self._shortest is None:
            self._means.append(mean)
            return
        (on_all,) = self._on_all_ranks([self._shortest])  # a hitch in one step changes no window
        self._shortest = None
        steps = math.ceil(_SECONDS * runtime.get_size() / on_all)
        self._window = min(max(steps, _LEAST_STEPS), _MOST_STEPS)

    def _choose(self) -> None:
        turns = [self._means[first : first + len(_TURN)] for first in range(0, len(_WINDOWS), len(_TURN))]
        means = [
            statistics.mean(mean for mean, on in zip(turn, _TURN, strict=True) if on is wanted)
            for wanted in (False, True)
            for turn in turns
        ]
        sums = self._on_all_ranks(means)
        pairs = sorted(zip(sums[:_TURNS], sums[_TURNS:], strict=True), key=lambda pair: pair[0] / pair[1])
        off, on = pairs[_TURNS // 2]  # of the turn with the median gain
        self.choice = bool(off > _LEAST_GAIN * on)
        log.logger.info(
            "cores are %s in training steps: %.2f ms a step with cores kept awake, %.2f ms without",
            "kept awake" if self.choice else "not kept awake",
            1e3 * on / runtime.get_size(),
            1e3 * off / runtime.get_size(),
        )


def settings() -> dict[str, Any]:
    """What must be the same on all ranks for `in_steps`."""
    return {"TNT_KEEP_AWAKE": {None: "auto", True: 1, False: 0}[awake.wish()]}


@contextlib.contextmanager
def in_steps(model: Any) -> Iterator[list[keras.callbacks.Callback]]:
    """The callbacks of one fit, in whose body cores are kept awake as TNT_KEEP_AWAKE says, and as a trial says.

    Collective.
    """
    known, wish = training.of(model), awake.wish()
    if wish is None and known.awake_trial is None:
        known.awake_trial = _exchange.on_any_rank(awake.permitted(), "cores kept awake") and Trial()
    with contextlib.ExitStack() as kept:
        if wish:
            kept.enter_context(awake.kept())
        if wish is not None or not known.awake_trial:
            yield []
        else:
            yield [_InSteps(known.awake_trial, kept)]


class _InSteps(keras.callbacks.Callback):
    def __init__(self, trial: Trial, kept: contextlib.ExitStack) -> None:
        super().__init__()
        self._trial, self._kept, self._on = trial, kept, False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._trial.pause()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        wanted = self._trial.before_step()
        if wanted == self._on:
            return
        if wanted:
            self._kept.enter_context(awake.kept())
        else:
            self._kept.close()
        self._on = wanted
