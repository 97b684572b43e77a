"""Before the first step of a model with code that is not Keras's: its first batch is looked at, and then given to it.

Ranks bring together what they find. So a loss that a layer adds is known to be a mean or a sum over rows before it is
used in a step; what is neither, and layers that couple rows, are named.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ... import _exchange
from ..._backend import backend
from ..._job import log
from ..._job.log import listed
from .. import private, training
from . import trial
from .step import inputs_of
from .trial import Figures, Findings, Verdict


def looking_at_it(model: Any, trains: bool, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function of steps, which looks at the first batch where it is due. Collective where it is."""

    def run(iterator: Any) -> Any:
        found = training.of(model)
        if found.call is not None and trains in found.untried:
            watched = trial.watched(model)
            batch, iterator = backend.look_ahead(iterator, model.steps_per_execution) if watched else (None, iterator)
            if batch is not None:
                _try_out(model, trains, batch, watched)
            found.untried.discard(trains)
        return function(iterator)

    return run


def _try_out(model: Any, trains: bool, batch: Any, watched: list[int]) -> None:
    rows = int(batch.rows if hasattr(batch, "rows") else batch.numbers[0])
    mine: dict[str, Any] = {}
    if rows > 1:
        try:
            mine = _as_json(trial.measure(model, inputs_of(batch.data), rows, trains, watched, trial.differing(model)))
        except Exception as error:  # whatever the code of users raises
            mine = {"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    everyone = [json.loads(each) for each in _exchange.gather_bytes(json.dumps(mine).encode())]
    failed = next((each["failed"] for each in everyone if "failed" in each), None)
    if failed is not None:
        log.logger.info(
            f"{model.name} is not tried out on its first batch, because it fails outside of a step: {failed}"
        )
        return
    if trains:
        _say_coupled(model, everyone)
    if _decide(model, trains, everyone):
        training.of(model).undecided.add(trains)
    else:
        training.of(model).undecided.discard(trains)


def _as_json(found: Findings) -> dict[str, Any]:
    added = [[*key, *figures] for key, figures in found.added.items()]
    return {"added": added, "gather": sorted(found.gather), "coupled": list(found.coupled.items())}


def _say_coupled(model: Any, everyone: list[dict[str, Any]]) -> None:
    if any(each.get("gather") for each in everyone):
        return  # on the rows of one rank alone these layers compute something else
    every = private.every_layer(model)
    most: dict[int, float] = {}
    for layer, change in (pair for each in everyone for pair in each.get("coupled", ())):
        most[layer] = max(change, most.get(layer, 0.0))
    if most:
        said = [
            f"{title(every[layer])} ({'numbers for pairs of rows' if change > 1e9 else f'by {change:.1%}'})"
            for layer, change in sorted(most.items())
        ]
        log.warn_once(
            f"{listed(said)}: the output for a row depends on which rows share a batch: on half of the rows it is "
            "another one. Each rank has its own rows, so training differs from one process; to avoid this, compute "
            "each row (axis 0) by itself, or on the rows of all ranks, which tarantella.gather_rows returns"
        )


def _decide(model: Any, trains: bool, everyone: list[dict[str, Any]]) -> bool:
    """Decides about each loss that a layer adds. True if something could not be told."""
    found: dict[tuple[int, int], dict[int, Figures]] = {}
    for rank, each in enumerate(everyone):
        for layer, number, *figures in each.get("added", ()):
            found.setdefault((layer, number), {})[rank] = Figures(*figures)
    gather = {layer for each in everyone for layer in each.get("gather", ())}
    every, unknown = private.every_layer(model), not any(everyone)  # no rank had two rows
    for (layer, number), by_rank in found.items():
        verdicts = {rank: figures.verdict() for rank, figures in by_rank.items()}
        kinds = {*verdicts.values()} - {Verdict.UNKNOWN}
        is_sum = sum(a - b for a, b in (figures.distances() for figures in by_rank.values())) > 0
        if layer in gather:
            is_sum = False
        elif not kinds:
            unknown, is_sum = True, False
            say_unknown(every[layer])
        elif kinds not in ({Verdict.MEAN}, {Verdict.SUM}) and not gather:
            rank = next(rank for rank, each in verdicts.items() if each is not Verdict.UNKNOWN)
            rank = next((rank for rank, each in verdicts.items() if each is Verdict.NEITHER), rank)
            _say_neither(every[layer], rank, by_rank[rank], "sum" if is_sum else "mean")
        training.of(model).added_sum(every[layer], trains, number).assign(int(is_sum))
    return unknown


def _say_neither(layer: Any, rank: int, figures: Figures, taken: str) -> None:
    (a, b), (first, second) = figures.parts, figures.rows
    again = f", and {figures.again:.4g} with other random numbers" if figures.again != figures.whole else ""
    log.warn_once(
        f"a loss that {title(layer)} adds is neither a mean nor a sum over rows: {figures.whole:.4g} for "
        f"{first + second} rows of rank {rank}{again}, {a:.4g} and {b:.4g} for {first} and {second} of them. It counts "
        f"as a {taken}, so training differs from one process; computed on the rows of all ranks, which "
        "tarantella.gather_rows returns, it would not"
    )


def say_unknown(layer: Any) -> None:
    """Warns once that what the layer adds counts as a mean."""
    log.warn_once(
        f"whether a loss that {title(layer)} adds is a mean or a sum over rows could not be told from the first batch; "
        "it counts as a mean. It is looked at again in the next epoch; a sum divided by the number of rows is a mean"
    )


def title(layer: Any) -> str:
    """The layer's class and name."""
    return f"{type(layer).__name__} {layer.name!r}"
