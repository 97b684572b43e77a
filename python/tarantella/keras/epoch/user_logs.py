"""The logs that a user-defined step returns, combined over all ranks.

A log that is the result of a metric is computed again from the states of all ranks. Any other log is a number for the
rows of one rank; these are averaged over the ranks, weighted by their rows, which is right for a mean over the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import tree

from ... import _exchange
from ..._job import log, runtime
from ..._job.log import listed
from .. import training


def combined(model: Any, trains: bool, logs: dict[str, Any]) -> dict[str, Any]:
    """The logs that one process would return. The metrics must hold the combined states. Collective."""
    steps = training.of(model).logs[trains]
    results = [source.result() for source in tree.flatten(steps.sources)]
    others = [i for i, result in enumerate(results) if result is None]
    for i, value in zip(others, _averaged(steps, logs, others), strict=True):
        results[i] = value
    packed: dict[str, Any] = tree.pack_sequence_as(logs, results)
    return packed


def flattened(logs: Any) -> dict[str, Any]:
    """The numbers and arrays in logs, with nested dicts flattened, as Keras passes them to callbacks."""
    flat_logs: dict[str, Any] = {}
    for name, value in logs.items():
        flat_logs |= flattened(value) if isinstance(value, dict) else {name: _number(value)}
    return flat_logs


def _number(value: Any) -> Any:
    return np.asarray(value) if np.ndim(value) else float(value)


def _averaged(steps: training.Logs, logs: dict[str, Any], others: list[int]) -> list[Any]:
    if not others:
        return []
    values = [np.asarray(tree.flatten(logs)[i]) for i in others]
    mine = np.concatenate([[float(steps.rows.numpy())], _exchange.join(values, np.float64)])
    everyone = runtime.context().allgather(mine, "logs")
    rows, numbers = everyone[:, 0], everyone[:, 1:]
    seen = numbers[rows > 0]  # the numbers of a rank without rows come from a copied row
    alike = (seen == seen[0]).all(axis=0)
    means = np.where(alike, seen[0], rows[rows > 0] @ seen / rows.sum())
    differ = [not each.all() for each in _exchange.cut(alike, values)]
    if any(differ):
        names = _names(logs)
        log.warn_once(
            f"{listed([names[i] for i, differs in zip(others, differ, strict=True) if differs])} (logs of a "
            "user-defined step that are not results of metrics): the ranks' values for the last batch are averaged, "
            "weighted by their rows, which is exact for a mean over rows; for other logs return the result of a metric"
        )
    return _exchange.cut(means, values)


def _names(logs: dict[str, Any]) -> list[str]:
    """The names of the leaves, in the order of `tree.flatten`."""
    return [str(name) for name in tree.flatten(_named(logs, ""))]


def _named(logs: Any, name: str) -> Any:
    if isinstance(logs, dict):
        return {key: _named(value, str(key)) for key, value in logs.items()}
    return tree.map_structure(lambda _: name, logs)
