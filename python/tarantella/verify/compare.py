"""Finds the first difference between the records of one process and of several ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .record import Observation, places

# Tolerance for weights after the first step, relative to their change in training: rounding in float32 gives 1e-7 to
# 1e-5. It grows linearly with the steps, because rounding accumulates. For losses: relative to the loss.
_APART = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-1, "bfloat16": 1e-1}
_LOSS_APART = {"float64": 1e-10, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-2}
_EPSILON = {"float64": 2.3e-16, "float32": 1.2e-7, "float16": 9.8e-4, "bfloat16": 7.9e-3}


@dataclass
class Difference:
    """The first difference: its kind and a line that describes it."""

    kind: str  # steps, model, rows, data, rate, loss, weights
    observation: Observation
    line: str
    tensor: str = ""


@dataclass
class Agreement:
    """No difference beyond rounding, and the largest one that counts as rounding."""

    steps: int = 0  # steps with finite numbers only; others cannot be compared
    not_finite: str = ""  # the first number that is not finite: "step 3, the loss"
    largest: float = 0.0
    tensor: str = ""
    label: str = ""
    precision: str = ""


def compare(
    one: list[Observation], ranks: list[list[Observation]], without: Collection[str] = ()
) -> Difference | Agreement:
    """Compares all observations in order: the rows, the loss, then each weight on each rank.

    Ignores the weights named in `without`.
    """
    first: dict[int, Observation] = {}  # of each model
    ages: Counter[int] = Counter()  # its steps so far
    agreement = Agreement()
    size = f"{len(ranks)} rank{'s' * (len(ranks) > 1)}"
    for index, mine in enumerate(one):
        others = [rank[index] for rank in ranks if index < len(rank)]
        if len(others) < len(ranks):
            rank = next(r for r, seen in enumerate(ranks) if len(seen) <= index)
            line = f"{mine.label}: on one process only, rank {rank} of {size} did not reach it"
            return Difference("steps", mine, line)
        first.setdefault(mine.model, mine)
        ages[mine.model] += mine.step > 0
        found = (
            _structure(mine, others)
            or _inputs(mine, others, size)
            or _loss(mine, others, ages[mine.model], size)
            or _weights(mine, others, first[mine.model], ages[mine.model], without, agreement, size)
        )
        if found:
            return found
        not_finite = _not_finite(mine)
        agreement.steps += mine.step > 0 and not not_finite
        agreement.not_finite = agreement.not_finite or not_finite
    longest = max(ranks, key=len)
    if len(longest) > len(one):
        extra = longest[len(one)]
        return Difference("steps", extra, f"{extra.label}: on {size} only, one process did not reach it")
    return agreement


def _structure(mine: Observation, others: list[Observation]) -> Difference | None:
    for rank, other in enumerate(others):
        if other.label != mine.label:
            return Difference("steps", mine, f"{mine.label} on one process, {other.label} on rank {rank}")
        for name, shape, other_name, found in zip(mine.names, mine.shapes, other.names, other.shapes, strict=False):
            if shape != found:
                line = f"tensor {name!r} has the shape {tuple(shape)} on one process, {other_name!r} has {tuple(found)}"
                return Difference("model", mine, f"{mine.label}, {line} on rank {rank}")
        if len(mine.names) != len(other.names):
            line = f"{len(mine.names)} trainable weights on one process, {len(other.names)} on rank {rank}"
            return Difference("model", mine, f"{mine.label}: {line}")
    return None


def _inputs(mine: Observation, others: list[Observation], size: str) -> Difference | None:
    rows = sum(other.rows for other in others)
    if rows != mine.rows:
        return Difference("rows", mine, f"{mine.label}: {mine.rows} rows on one process, {rows} in total on {size}")
    if (sum(other.checksum for other in others) - mine.checksum) % 2**64:
        return Difference("data", mine, f"{mine.label}: the {rows} rows on {size} differ from those on one process")
    for rank, other in enumerate(others):
        a, b = mine.learning_rate, other.learning_rate
        if a is not None and b is not None and abs(a - b) > 1e-6 * abs(a):
            line = f"the learning rate, rank {rank}: {a:.6g} on one process, {b:.6g} on {size}"
            return Difference("rate", mine, f"{mine.label}, {line}")
    return None


def _loss(mine: Observation, others: list[Observation], age: int, size: str) -> Difference | None:
    weight = sum(other.weight for other in others)
    if mine.step == 0 or not mine.weight or not weight:
        return None
    a, b = mine.loss / mine.weight, sum(other.loss for other in others) / weight
    if _distance(a, b) <= np.nan_to_num(_LOSS_APART[_coarser(mine)] * age * max(abs(a), abs(b))):
        return None
    shown, other = _shown(a, b)
    return Difference("loss", mine, f"{mine.label}, the loss: {shown} on one process, {other} on {size}")


def _not_finite(mine: Observation) -> str:
    if not np.isfinite(mine.loss):
        return f"{mine.label}, the loss"
    names = (name for name, sketch in zip(mine.names, mine.sketches, strict=True) if not np.isfinite(sketch).all())
    name = next(names, None)
    return f"{mine.label}, tensor {name!r}" if name else ""


def _coarser(mine: Observation) -> str:
    return max(mine.precision, mine.loss_precision, key=_LOSS_APART.__getitem__)


def _weights(
    mine: Observation,
    others: list[Observation],
    first: Observation,
    age: int,
    without: Collection[str],
    agreement: Agreement,
    size: str,
) -> Difference | None:
    for i, name in enumerate(mine.names):
        if name in without:
            continue
        now, start = mine.sketches[i], first.sketches[i]
        moved = _length(_finite(_distance(now, start) if first.step == 0 else now))
        allowed = _APART[mine.precision] * age * moved + 8 * _EPSILON[mine.precision] * _length(_finite(now))
        for rank, other in enumerate(others):
            apart = _distance(mine.samples[i], other.samples[i])
            worst = int(apart.argmax()) if apart.size else 0
            if _length(_distance(mine.sketches[i], other.sketches[i])) <= allowed:
                if apart.size and apart[worst] > agreement.largest:
                    agreement.largest, agreement.tensor = float(apart[worst]), name
                    agreement.label, agreement.precision = mine.label, mine.precision
                continue
            where = np.unravel_index(places(int(np.prod(mine.shapes[i])))[worst], mine.shapes[i])
            element = f"[{', '.join(map(str, where))}]" if where else ""
            a, b = _shown(mine.samples[i][worst], other.samples[i][worst])
            line = f"{mine.label}, tensor {name!r}{element}, rank {rank}: {a} on one process, {b} on {size}"
            return Difference("weights", mine, line, name)
    return None


def _distance(one: Any, other: Any) -> NDArray[Any]:
    """The absolute differences: 0 if both are NaN or the same infinity, infinite if only one is."""
    with np.errstate(invalid="ignore"):
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        return np.where(same, 0.0, np.nan_to_num(np.abs(one - other), nan=np.inf, posinf=np.inf))


def _finite(vector: NDArray[Any]) -> NDArray[Any]:
    return vector[np.isfinite(vector)]


def _length(vector: NDArray[Any]) -> float:
    return float(np.linalg.norm(vector))


def _shown(one: float, other: float) -> tuple[str, str]:
    """Both numbers with enough digits to tell them apart."""
    digits = next((d for d in range(4, 17) if f"{one:.{d}g}" != f"{other:.{d}g}"), 17) + 2
    return f"{one:.{digits}g}", f"{other:.{digits}g}"
