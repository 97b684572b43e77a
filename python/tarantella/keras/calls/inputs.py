"""The arguments that say how the data of a call are read, checked."""

from __future__ import annotations

import operator
from typing import Any

from ..._job import log, runtime


def check_size(name: str, value: Any) -> None:
    """Raises for a batch size that is no whole number (TypeError) or below 1 (ValueError)."""
    if value is None:
        return
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number or None (got {value!r})") from None
    if value < 1:
        raise ValueError(f"{name} must be at least 1 (got {value})")


def checked(micro_batch_size: int | None, distribute: bool, kind: str = "") -> dict[str, Any]:
    """The checked tnt_ arguments of one input, as `data.feed.feed_of` takes them."""
    check_size(f"tnt_{kind}micro_batch_size", micro_batch_size)
    if not isinstance(distribute, bool):
        raise TypeError(f"tnt_distribute_{kind}dataset must be True or False (got {distribute!r})")
    if not distribute and runtime.get_size() == 1:
        log.logger.info("tnt_distribute_%sdataset=False: with one rank there is nothing to distribute", kind)
    return {"micro_batch_size": micro_batch_size, "distributed": distribute}
