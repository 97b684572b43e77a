"""Silent processes: they train on a rank's rows, with its input pipeline, and do not communicate.

They show how fast ranks could be. In lockstep they start each step together, as ranks do that wait for one another.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

import keras
import nets

SECONDS = 60.0  # that a process waits for another one
LINE = 64  # bytes


class Lockstep(keras.callbacks.Callback):
    """Starts each step when all processes are there. Those that come first spin, and no bytes are exchanged.

    `file` has a cache line for each process, with the number of steps that it wants to have started.
    """

    def __init__(self, file: Path, rank: int, size: int) -> None:
        super().__init__()
        self._rank, self._size, self._count = rank, size, 0
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, LINE * size)
        self._words = mmap.mmap(descriptor, LINE * size)
        os.close(descriptor)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._count += 1
        struct.pack_into("q", self._words, LINE * self._rank, self._count)
        began = time.monotonic()
        for other in range(self._size):
            while struct.unpack_from("q", self._words, LINE * other)[0] < self._count:
                if time.monotonic() > began + SECONDS:
                    raise TimeoutError(f"process {other} has not come to step {self._count}")


class Silent:
    """Trains as process `rank` of `size`. Has `fit` only."""

    def __init__(self, net: nets.Net, mode: str, rank: int, size: int, folder: Path) -> None:
        """`mode` is silent or lockstep; `folder`, empty at first, is that of all processes."""
        self._net, self._rank, self._size = net, rank, size
        self._callbacks: list[Any] = []
        if mode == "lockstep":
            self._callbacks = [Lockstep(folder / "lockstep", rank, size)]

    def fit(self, steps: int, epochs: int, callbacks: list[Any]) -> None:
        from tarantella.data import adapter
        from tarantella.data.tf_data import from_arrays

        batch = self._net.rows * self._size
        source = adapter.adapt_arrays(*nets.data(self._net, batch * steps), batch_size=batch)
        rows = from_arrays.distribute(source, self._rank, self._size).get_tf_dataset()
        batches = adapter.ShardedAdapter(source, rows.map(lambda micro_batch: micro_batch.data), steps)
        self._net.model.fit(batches, shuffle=False, epochs=epochs, verbose=0, callbacks=[*self._callbacks, *callbacks])
