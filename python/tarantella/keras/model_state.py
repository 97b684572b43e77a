"""What is known of a Keras model while ranks train and evaluate it together: one object per model."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from .._backend.steps import in_fresh_thread
from .._job import runtime
from .._job.environment import integer
from . import private

# `loop(optimizer, gradients, variables, apply)` returns `apply(reduced)`, the optimizer's own update. It must not hold
# the optimizer.
Loop = Callable[[Any, list[Any], list[Any], Callable[[list[Any]], Any]], Any]


def counter(length: int | None = None) -> Any:
    """A new int64 variable with the value 0, part of no model, that steps may add to. May be made in a trace.

    With a `length` a vector of zeros.
    """
    zeros = np.zeros([] if length is None else [length], np.int64)
    return in_fresh_thread(lambda: keras.Variable(zeros, dtype="int64", trainable=False, name="tarantella_counter"))


@dataclass(eq=False)
class Call:
    """A fit or evaluation of a model in which all ranks ask for results together."""

    trains: bool
    on_batch: bool = False  # of a single batch, after which ranks compare and average nothing else
    metrics_are_local: bool = False  # whether the metrics hold what this rank has seen, not what all have


def weight_check_interval() -> int:
    """Steps between two comparisons of weights, equal on all ranks.

    The checksum reads the weights once, so a hundred steps that each read and write them several times take a thousand
    times as long.
    """
    return integer("TNT_WEIGHT_CHECK_STEPS", 100)


class PlanOwner:
    """What owns plans of the core."""


class Logs:
    """What is known of the logs that the training or evaluation steps of a model return."""

    def __init__(self) -> None:
        self.rows = counter()  # of this rank, in the latest step
        self.log_sources: Any = None  # of its logs, in their structure


class ModelState:
    """The facts about one model, grouped by the event at which they lapse.

    All of them end with the model itself. A model trains on all ranks of the job, so no fact depends on a group of
    ranks. Backends keep the core's plans, by their owners.
    """

    def __init__(self) -> None:
        # The end of the innermost call or `with` block that set them.
        self.call: Call | None = None  # None where this rank runs the model for itself
        self.validation: Any = None  # of a fit: its DistributedInput
        self.saved_by_master = False  # whether callbacks that save the model write on the master only

        # The start of the next call, with the same data or another dataset.
        self.data_fingerprint = counter()  # the sum of those of the global batches, since ranks last compared it
        self.nan_labels = counter()  # in this rank's rows
        self.completed = -1  # at least so many steps of this call, known when the next one or the epoch's end begins
        self.batch_rows: int | None = None  # those of a full global batch, where they are known

        # The next average of what layers keep, or the next values of the master.
        self.stepped_since_sync = False  # whether steps have run since

        # The next trace of the training or evaluation step, which recompiling causes too.
        self.logs: dict[bool, Logs] = {}  # by whether the steps train

        # The next `compile`. A `set_weights` ends nothing: after one on some ranks only, test_on_batch and
        # predict_on_batch start from the master's weights, and in train_on_batch `replicas` finds those trained.
        # By kind of step on single batches, for which ranks were made equal: the loss tracker at that time.
        self.equal_for: dict[str, Any] = {}
        # The loss tracker at that time, and what a user's compute_loss uses of all rows: see `step.batch_dependent`.
        self.compute_loss_uses: tuple[Any, tuple[str, ...]] = (None, ())
        # By whether steps train: those whose first batch is still to be looked at, or shall be at the next epoch; what
        # calls the model for it; why that failed. And the loss tracker for which they hold.
        self.untried, self.undecided = {True, False}, set[bool]()
        self.trials: dict[bool, Any] = {}
        self.failed_trial: dict[bool, str] = {}
        self._tried_for: Any = None
        self.single_batches = 0  # trained on

        # The next function of training steps, as after `compile`.
        self.already_summed: dict[int, Any] = {}  # by `_backend.steps.key`: 1 for those that tapes have summed in it

        # The end of the model, as what follows.
        self.trace_cache_key = object()  # tells the user's functions that are traced in its steps from others
        self.summed: set[int] = set()  # variables, by `_backend.steps.key`, that tapes have summed in any step
        # Of a step with a user's code that runs: this rank's rows, those of all ranks, whether this rank's row is a
        # copy, how many steps this call has begun. A function of the user's is traced once for several traces of it.
        self.step_metadata = counter(4)
        self.plan_owners: list[PlanOwner] = []  # by the number of a call for the same variables in a trace
        self.end_owner = PlanOwner()
        # By name, and the types of the rows: whether these are gathered, which all ranks know alike.
        self.can_gather: dict[Any, bool] = {}
        self.global_metrics: dict[int, Any] = {}  # metrics that every rank updates with all rows, by id

        # The next comparison of weights; steps count on from call to call. See `replicas.before_step`.
        self.unchecked_steps = 0
        self.weight_check_interval = 0  # from the first call on

        # The end of the layer or the model: what the code of a layer computes stays the same.
        # Whether what layers add, in training or not, is a sum over rows: 1, or 0 for a mean.
        self._added_sums: weakref.WeakKeyDictionary[Any, dict[tuple[bool, int], Any]] = weakref.WeakKeyDictionary()

    def reset_for_call(self) -> None:
        """Forgets what the previous call has read. Called before the first step of a call."""
        self.weight_check_interval = weight_check_interval()
        self.data_fingerprint.assign(0)
        self.nan_labels.assign(0)
        self.step_metadata.assign([0] * 4)
        self.completed = -1
        self.try_again()

    def is_untried(self, model: Any, trains: bool) -> bool:
        """Whether the first batch of such steps is still to be looked at, since the model was compiled."""
        tracker = private.loss_tracker(model)
        if self._tried_for is not tracker:
            self._tried_for, self.untried, self.undecided = tracker, {True, False}, set()
            self.trials, self.failed_trial = {}, {}
        return trains in self.untried

    def count_single_batch(self) -> None:
        """Has a first batch looked at again after 1, 2, 4, 8, … single batches, of which none begins an epoch."""
        self.single_batches += 1
        if not self.single_batches & (self.single_batches - 1):
            self.try_again()

    def try_again(self) -> None:
        """Has the first batch of the next steps looked at again, where that of earlier ones did not tell enough."""
        self.untried |= self.undecided

    def is_added_known(self, layer: Any, trains: bool, number: int) -> bool:
        """Whether `added_sum` was asked for before."""
        return (trains, number) in self._added_sums.get(layer, {})

    def added_sum(self, layer: Any, trains: bool, number: int) -> Any:
        """A variable: 1 if what the layer adds with this number in a step is a sum over rows, 0 for a mean."""
        known = self._added_sums.setdefault(layer, {})
        if (trains, number) not in known:
            known[trains, number] = counter()
        return known[trains, number]

    def plan_owner(self, number: int) -> PlanOwner:
        """What owns the plans of the call of this number for the same variables in a trace."""
        while len(self.plan_owners) <= number:
            self.plan_owners.append(PlanOwner())
        return self.plan_owners[number]

    def note_summed(self, variables: set[int]) -> None:
        """Notes those that tapes have summed in a trace, once it ends."""
        for key in variables & self.already_summed.keys():
            in_fresh_thread(functools.partial(self.already_summed[key].assign, 1))


_known: weakref.WeakKeyDictionary[Any, ModelState] = weakref.WeakKeyDictionary()
# By optimizer of a user-defined loop, which has no model: what is done with a rank's gradients that it applies.
loops: weakref.WeakKeyDictionary[Any, Loop] = weakref.WeakKeyDictionary()


def of(model: Any) -> ModelState:
    """What is known of a model, from its first distributed call on."""
    if model not in _known:
        _known[model] = ModelState()
    return _known[model]


def get(model: Any) -> ModelState | None:
    """As `of`, None for a model that ranks have not trained or evaluated together."""
    return _known.get(model)


def note_batch(model: Any, fingerprint: Any, labels: Sequence[Any] = ()) -> None:
    """Adds one global batch, within a step. `labels`: this rank's, where it trains on them."""
    found = of(model)
    found.data_fingerprint.assign_add(fingerprint)
    floats = [each for each in labels if _is_dense_float(each)]
    if floats:
        found.nan_labels.assign_add(sum(ops.cast(ops.count_nonzero(ops.isnan(each)), "int64") for each in floats))


def _is_dense_float(value: Any) -> bool:
    is_dense = hasattr(value, "dtype") and not (hasattr(value, "dense_shape") or hasattr(value, "row_splits"))
    return is_dense and keras.backend.is_float_dtype(keras.backend.standardize_dtype(value.dtype))


@contextlib.contextmanager
def during(model: Any, call: Call | None) -> Iterator[None]:
    """Makes `call` the model's current call for the block, and restores the enclosing one afterwards."""
    found = of(model)
    outer, found.call = found.call, call
    try:
        yield
    finally:
        found.call = outer
        if outer is not None and outer.metrics_are_local:
            reset_unless_master(model)


def reset_unless_master(model: Any) -> None:
    """Prepares combined metrics for further updates: the master keeps the combined state, the other ranks reset theirs.

    So the next sum over the ranks counts it once.
    """
    if not runtime.is_master_rank():
        model.reset_metrics()
