"""One process of a row of bench/training.py: trains a network, and writes the seconds of each subject as JSON.

Modes: `ranks` trains with Tarantella, as a rank or, if no launcher started it, alone. `plain` is Keras; Tarantella is
not even imported. `silent` and `lockstep` are the silent processes of bench/silent.py.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import nets
import processes
import rows
import silent
from turns import Turns

SECONDS = 120.0  # that a process waits until it was weighed


class Clock(keras.callbacks.Callback):
    """Records the seconds per step of turns of some epochs each, from the end of an epoch to the end of another one.

    The first epoch does not count.
    """

    def __init__(
        self, steps: int, epochs: int = 1, turns: int = 0, take_turn: Callable[[], None] = lambda: None
    ) -> None:
        """`take_turn` is called before each turn of so many."""
        super().__init__()
        self._epochs, self._steps_of_turn = epochs, epochs * steps
        self._turns, self._take_turn = turns, take_turn
        self._began = 0.0
        self.steps: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch % self._epochs:
            return
        if epoch:
            self.steps.append((time.perf_counter() - self._began) / self._steps_of_turn)
        if len(self.steps) < self._turns:
            self._take_turn()
        self._began = time.perf_counter()


class PlainClock(Clock):
    """Records them from the end of an epoch's first step to the end of its last one.

    The first step waits, for half a second or not, by chance, for the thread in which tf.data tunes Keras's pipeline.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.perf_counter()
        if batch == 0:
            self._began = now
        self._seconds = now - self._began

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch:
            self.steps.append(self._seconds / (self._steps_of_turn - 1))
        if len(self.steps) < self._turns:
            self._take_turn()


class AfterStep(keras.callbacks.Callback):
    """Calls a function at the end of the step with this number."""

    def __init__(self, number: int, function: Callable[[], None]) -> None:
        super().__init__()
        self._number, self._function = number, function

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self._number:
            self._function()


class Plain:
    """Trains on global batches of `size` ranks."""

    def __init__(self, net: nets.Net, size: int) -> None:
        self.net, self.model, self._size = net, net.model, size

    def fit(self, steps: int, epochs: int, callbacks: list[Any]) -> None:
        batch = self.net.rows * self._size
        x, y = nets.data(self.net, batch * steps)
        self.model.fit(x, y, batch_size=batch, shuffle=False, epochs=epochs, verbose=0, callbacks=callbacks)


class Rank(Plain):
    """The same with Tarantella."""

    def __init__(self, net: nets.Net) -> None:
        import tarantella as tnt

        super().__init__(net, tnt.get_size())
        self.model = tnt.Model(net.model)


def wait_to_be_weighed(folder: Path) -> None:
    (folder / f"ready.{os.getpid()}").touch()
    began = time.monotonic()
    while not (folder / "go").exists():
        if time.monotonic() > began + SECONDS:
            raise TimeoutError("nobody has weighed this process")
        time.sleep(0.05)


class Subjects:
    """Measures the subjects of a row, `in_turns` in turns with other rows."""

    def __init__(
        self, trains: Any, amount: rows.Amount, folder: Path, in_turns: Sequence[str], clock: type[Clock]
    ) -> None:
        self._clock = clock
        self._trains, self._amount, self._folder = trains, amount, folder
        self._turns = Turns(folder, in_turns)

    def measure(self, subject: str) -> dict[str, list[float]]:
        return getattr(self, subject)()

    def steps(self) -> dict[str, list[float]]:
        return self._epochs("step", self._amount.steps, 1)

    def epochs(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for steps, count in self._amount.short.items():
            found |= self._epochs(f"epoch of {steps}", steps, count)
        return found

    def _epochs(self, subject: str, steps: int, count: int) -> dict[str, list[float]]:
        """Returns the seconds per step of each turn of `count` epochs, after an epoch that is not counted."""
        turns = self._amount.turns
        clock = self._clock(steps, count, turns, lambda: self._turns.take(subject))
        self._trains.fit(steps, 1 + turns * count, [clock])
        return {subject: clock.steps}

    def calls(self) -> dict[str, list[float]]:
        """Returns the seconds of a call of each kind with one batch in each turn, after one that is not counted."""
        import tensorflow as tf

        model, batch = self._trains.model, self._trains.net.rows
        x, y = nets.data(self._trains.net, batch)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)
        kinds = {
            "fit of a dataset": lambda: model.fit(dataset, verbose=0),
            "fit": lambda: model.fit(x, y, batch_size=batch, verbose=0),
            "evaluate": lambda: model.evaluate(x, y, batch_size=batch, verbose=0),
            "predict": lambda: model.predict(x, batch_size=batch, verbose=0),
        }
        seconds: dict[str, list[float]] = {name: [] for name in rows.CALLS}
        for turn in range(1 + self._amount.calls):
            if turn:
                self._turns.take("calls")
            for name in rows.CALLS:
                began = time.perf_counter()
                kinds[name]()
                seconds[name].append(time.perf_counter() - began)
        return {name: each[1:] for name, each in seconds.items()}

    def start(self) -> dict[str, list[float]]:
        """Returns the seconds from the command to the end of the first step."""
        began = float(os.environ[processes.BEGAN])
        seconds: list[float] = []
        self._trains.fit(2, 1, [AfterStep(0, lambda: seconds.append(time.monotonic() - began))])
        return {"start": seconds}

    def memory(self) -> dict[str, list[float]]:
        self._trains.fit(3, 1, [AfterStep(2, lambda: wait_to_be_weighed(self._folder))])
        return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=nets.NETS)
    parser.add_argument("mode", choices=["ranks", "plain", "silent", "lockstep"])
    parser.add_argument("subjects", nargs="+", choices=["steps", "epochs", "calls", "start", "memory"])
    parser.add_argument("--tiny", action="store_true", help="few steps")
    parser.add_argument("--rank", type=int, default=0, help="of a silent process")
    parser.add_argument("--size", type=int, default=1, help="ranks for which the global batch is made")
    parser.add_argument("--in-turns", nargs="*", choices=rows.IN_TURNS, default=[], help="with processes of other rows")
    parser.add_argument("--output", type=Path, required=True, help="a folder, which gets a file a process")
    options = parser.parse_args()
    keras.utils.set_random_seed(1)
    net = nets.NETS[options.net]()
    nets.compile_net(net)
    if options.mode == "ranks":
        trains: Any = Rank(net)
    elif options.mode == "plain":
        trains = Plain(net, options.size)
    else:
        trains = silent.Silent(net, options.mode, options.rank, options.size, options.output)
    is_plain = options.mode == "plain" or options.size == 1  # one rank is plain Keras
    clock = PlainClock if is_plain else Clock
    subjects = Subjects(trains, rows.amount(options.net, options.tiny), options.output, options.in_turns, clock)
    seconds: dict[str, list[float]] = {}
    for subject in options.subjects:
        seconds |= subjects.measure(subject)
    (options.output / f"{os.getpid()}.json").write_text(json.dumps(seconds), encoding="utf-8")
    if options.mode == "ranks":
        from tarantella._job import runtime

        runtime.close()
    os._exit(0)  # TensorFlow takes a second to end


if __name__ == "__main__":
    main()
