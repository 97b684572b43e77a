"""Before the first step of a model with code that is not Keras's: its first batch is looked at, and then given to it.

Ranks bring together what they find. So a loss that a layer adds is known to be a mean or a sum over rows before it is
used in a step; what is neither, and batch-dependent layers, are named.
"""

from __future__ import annotations

from typing import Any

from ... import _exchange
from ..._backend import backend
from ..._job import log
from ..._job.log import abbreviated
from .. import model_state, private
from . import batch_dependent
from .trial import LossReduction, LossValues, Trial


def inspect_first_batch(model: Any, trains: bool, iterator: Any) -> Any:
    """Looks at the first batch where it is due, and gives what to iterate over then. Collective where it is due."""
    found = model_state.of(model)
    if found.call is not None and found.is_untried(model, trains):
        if batch_dependent.candidates(model):
            batch, iterator = backend.peek(iterator, model.steps_per_execution)
            if batch is not None:
                _try_out(model, trains, batch)
        found.untried.discard(trains)
    return iterator


def _try_out(model: Any, trains: bool, batch: Any) -> None:
    found = model_state.of(model)
    rows = int(batch.rows)
    local: dict[str, Any] = {"rows": rows, "added": [], "batch_dependent": []}
    try:
        x = batch.data[0] if isinstance(batch.data, tuple) else batch.data
        if trains not in found.trials:
            found.trials[trains] = Trial(
                model, x, trains, batch_dependent.candidates(model), batch_dependent.by_design(model)
            )
        findings = found.trials[trains].measure(x, max(rows, 1))  # also where this rank's row is a copy
        local["added"] = [[*key, *figures] for key, figures in findings.added.items()]
        local["batch_dependent"] = list(findings.batch_dependent.items())
    except Exception as error:  # whatever the code of users raises
        local["failed"] = f"{type(error).__name__}: {_message(error)}"
    everyone = _exchange.gather_json(local)
    found.failed_trial[trains] = next((each["failed"] for each in everyone if "failed" in each), "")
    if found.failed_trial[trains]:
        log.logger.info(
            f"{model.name} is not tried out on its first batch, because its call fails there, outside of a step: "
            f"{found.failed_trial[trains]}"
        )
        found.trials.pop(trains, None)
        return
    if trains:
        _warn_of_batch_dependent(model, everyone)
    if _decide(model, trains, everyone):
        found.undecided.add(trains)
    else:
        found.undecided.discard(trains)
        del found.trials[trains]


def _message(error: Exception) -> str:
    """What an error says, without what Keras puts around it."""
    around = ("Exception encountered when calling", "Graph execution error", "Detected at node")
    lines = (line.strip("\x1b[01m '\"") for line in str(error).replace("\\n", "\n").splitlines())
    return next((line for line in lines if line and not line.startswith(around)), "")


def _warn_of_batch_dependent(model: Any, everyone: list[dict[str, Any]]) -> None:
    every = private.every_layer(model)
    most: dict[int, float] = {}
    for layer, change in (pair for each in everyone for pair in each["batch_dependent"] if each["rows"]):
        most[layer] = max(change, most.get(layer, 0.0))
    if most:
        said = [
            f"{title(every[layer])} ({'numbers for pairs of rows' if change > 1e9 else f'{change:.2g}'})"
            for layer, change in sorted(most.items())
        ]
        log.warn_once(
            f"{abbreviated(said)}: the output for a row depends on which rows share a batch. On half of the rows it "
            "differs by so much of its largest value, and each rank has its own rows, so training differs from one "
            "process; to avoid this, compute each row (axis 0) by itself, or on tarantella.gather_rows(x)"
        )


def _decide(model: Any, trains: bool, everyone: list[dict[str, Any]]) -> bool:
    """Decides about each loss that a layer adds. True if something could not be told.

    Ranks with several rows tell; where none has, those with one, which they have taken twice.
    """
    least = 2 if any(each["rows"] > 1 for each in everyone) else 1
    found: dict[tuple[int, int], dict[int, LossValues]] = {}
    for rank, each in enumerate(everyone):
        for layer, number, *figures in each["added"] if each["rows"] >= least else ():
            found.setdefault((layer, number), {})[rank] = LossValues(*figures)
    every, unknown = private.every_layer(model), False
    for (layer, number), by_rank in found.items():
        reductions = {rank: figures.reduction() for rank, figures in by_rank.items()}
        kinds = {*reductions.values()} - {LossReduction.UNKNOWN}
        is_sum = sum(a - b for a, b in (figures.distances() for figures in by_rank.values())) > 0
        if not kinds:
            unknown, is_sum = True, False
            _warn_of_unknown(every[layer], "is 0, or random, in the first batch")
        elif kinds not in ({LossReduction.MEAN}, {LossReduction.SUM}):
            rank = next(rank for rank, each in reductions.items() if each is not LossReduction.UNKNOWN)
            rank = next((rank for rank, each in reductions.items() if each is LossReduction.NEITHER), rank)
            _warn_of_neither(every[layer], rank, by_rank[rank], "sum" if is_sum else "mean")
        model_state.of(model).added_sum(every[layer], trains, number).assign(int(is_sum))
    return unknown


def _warn_of_neither(layer: Any, rank: int, figures: LossValues, taken: str) -> None:
    (a, b), (first, second) = figures.parts, figures.rows
    log.warn_once(
        f"a loss that {title(layer)} adds is neither a mean nor a sum over rows: {figures.whole:.4g} for "
        f"{first + second} rows of rank {rank}, {a:.4g} and {b:.4g} for {first} and {second} of them. It counts "
        f"as a {taken}, so training differs from one process; computed on tarantella.gather_rows(x), the rows of all "
        "ranks, it would not"
    )


def warn_of_unseen(model: Any, layer: Any, trains: bool) -> None:
    """Warns once that what the layer adds in a step was not seen before, and counts as a mean."""
    failed = model_state.of(model).failed_trial.get(trains)
    why = f"the model's call fails outside of a step ({failed})" if failed else "the model's call alone does not add it"
    _warn_of_unknown(layer, f"was not seen before the first step: {why}", again=False)


def _warn_of_unknown(layer: Any, why: str, again: bool = True) -> None:
    log.warn_once(
        f"a loss that {title(layer)} adds {why}. It counts as a mean over rows"
        f"{' until the first batch of an epoch tells' * again}; "
        f"{'if' if again else 'where'} it is a sum, training differs from one process{' until then' * again}. Divided "
        "by the number of rows it would be a mean"
    )


def title(layer: Any) -> str:
    """The layer's class and name."""
    return f"{type(layer).__name__} {layer.name!r}"
