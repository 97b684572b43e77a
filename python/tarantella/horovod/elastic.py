"""`hvd.elastic`: not offered."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotImplementedError(
        f"hvd.elastic.{name} is not offered: a job keeps its number of ranks; save checkpoints, and restart the job "
        "from the last one"
    )
