"""What is known of a Keras model while ranks train and evaluate it together: one object for each model."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from .._backend import tensorflow as backend
from .._job import runtime


class Call:
    """A fit or evaluation of a model in which all ranks ask for results together."""

    def __init__(self, trains: bool, on_batch: bool = False) -> None:
        """`on_batch`: of a single batch, after which ranks compare and average nothing else."""
        self.trains, self.on_batch = trains, on_batch
        self.in_parts = False  # whether the metrics hold what this rank has seen, not what all have


class Logs:
    """What is known of the logs that the training or evaluation steps of a model return."""

    def __init__(self) -> None:
        self.rows = backend.counter()  # of this rank, in the latest step
        self.sources: Any = None  # of its logs, in their structure


class Training:
    """The facts about one model, each until the time that its comment gives."""

    def __init__(self) -> None:
        self.call: Call | None = None  # the innermost call that runs now; None where this rank runs it for itself
        self.read = backend.counter()  # the sum of the fingerprints of the global batches, since ranks last compared it
        self.nan_labels = backend.counter()  # in this rank's rows, since the call began
        self.apart = False  # whether steps have run since the ranks brought together what their layers keep
        self.completed = -1  # steps of this call, where not less: seen when the next one or the epoch's end comes
        self.logs: dict[bool, Logs] = {}  # by whether the steps train; until they are traced again
        # What its last compile() had made when ranks were made equal for single batches; after another one it lapses.
        self.single_batches: tuple[Any] | None = None

    def start(self) -> None:
        """A call begins: forgets what was read."""
        self.read.assign(0)
        self.nan_labels.assign(0)
        self.completed = -1


_known: weakref.WeakKeyDictionary[Any, Training] = weakref.WeakKeyDictionary()


def of(model: Any) -> Training:
    """What is known of a model, from its first distributed call on."""
    if model not in _known:
        _known[model] = Training()
    return _known[model]


def known(model: Any) -> Training | None:
    """As `of`, None for a model that ranks have not trained or evaluated together."""
    return _known.get(model)


def note(model: Any, fingerprint: Any, labels: Sequence[Any] = ()) -> None:
    """Adds one global batch, within a step. `labels`: this rank's, where it trains on them."""
    found = of(model)
    found.read.assign_add(fingerprint)
    count = backend.count_nan(labels)
    if count is not None:
        found.nan_labels.assign_add(count)


def has_stepped(model: Any) -> bool:
    """Whether a training step of this call is known to have completed."""
    found = known(model)
    return found is not None and found.completed > 0


@contextlib.contextmanager
def during(model: Any, call: Call | None) -> Iterator[None]:
    """Until `call` has ended, it says how the model's results are made; then the call around it does again."""
    found = of(model)
    outer, found.call = found.call, call
    try:
        yield
    finally:
        found.call = outer
        if outer is not None and outer.in_parts:
            go_on(model)


def go_on(model: Any) -> None:
    """From a state that all ranks have alike: the master from this state, the others from nothing."""
    if not runtime.is_master_rank():
        model.reset_metrics()
