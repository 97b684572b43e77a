"""The logs that a user-defined step returns, for the rows of all ranks.

A log that is the result of a metric is made anew, from the states of all ranks. Any other log is one rank's number for
its own rows; the ranks' numbers are averaged by their rows, as the mean over a batch is.
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
    """The logs that one process would return, where the metrics hold the states of all ranks. Collective."""
    steps = training.of(model).logs[trains]
    results = [source.result() for source in tree.flatten(steps.sources)]
    others = [i for i, result in enumerate(results) if result is None]
    for i, value in zip(others, _averaged(steps, logs, others), strict=True):
        results[i] = value
    packed: dict[str, Any] = tree.pack_sequence_as(logs, results)
    return packed


def flattened(logs: Any) -> dict[str, Any]:
    """The numbers and arrays in logs, those of nested dicts too, as Keras gives them to callbacks."""
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
    seen = numbers[rows > 0]  # a rank without rows has numbers of a copied one
    alike = (seen == seen[0]).all(axis=0)
    means = np.where(alike, seen[0], rows[rows > 0] @ seen / rows.sum())
    differ = [not each.all() for each in _exchange.cut(alike, values)]
    if any(differ):
        names = _names(logs)
        log.warn_once(
            f"{listed([names[i] for i, differs in zip(others, differ, strict=True) if differs])} (logs of the model's "
            "own step that are no metric's result): the ranks' values for the last batch are averaged by their rows, "
            "which equals one process's for a mean over rows; for all else return the result of a metric"
        )
    return _exchange.cut(means, values)


def _names(logs: dict[str, Any]) -> list[str]:
    """Of the leaves, in the order in which `tree.flatten` has them."""
    return [str(name) for name in tree.flatten(_named(logs, ""))]


def _named(logs: Any, name: str) -> Any:
    if isinstance(logs, dict):
        return {key: _named(value, str(key)) for key, value in logs.items()}
    return tree.map_structure(lambda _: name, logs)
