"""What the launcher says: which rank this process is, and how it should behave."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """This process's place in the job; one rank that stands alone without a launcher."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    job: str = ""
    launched: bool = False


def integer(name: str, default: int, least: int = 0) -> int:
    """Reads a whole number from the environment. Raises ValueError with the name of the variable."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number (got {text!r})") from None
    if value < least:
        raise ValueError(f"{name} must be at least {least} (got {value})")
    return value


def number(name: str, default: float) -> float:
    """Reads a number from the environment. Raises ValueError with the name of the variable."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number of seconds (got {text!r})") from None
    if not value > 0:
        raise ValueError(f"{name} must be above 0 (got {text})")
    return value


def flag(name: str) -> bool:
    """True unless the variable is unset, empty, 0, false, no or off."""
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


@functools.lru_cache(maxsize=1)
def layout() -> Layout:
    """The layout that the environment describes, read once. Never blocks."""
    size = integer("TNT_SIZE", 1, least=1)
    rank = integer("TNT_RANK", 0)
    if rank >= size:
        raise ValueError(f"TNT_RANK must be below TNT_SIZE ({size}) (got {rank})")
    return Layout(
        rank=rank,
        size=size,
        local_rank=integer("TNT_LOCAL_RANK", rank),
        local_size=integer("TNT_LOCAL_SIZE", size, least=1),
        job=os.environ.get("TNT_JOB_ID", ""),
        launched=flag("TNT_LAUNCHER"),
    )


def prints_output() -> bool:
    """Whether this rank shows the progress of fit, evaluate and predict."""
    return layout().rank == 0 or flag("TNT_OUTPUT_ON_ALL_DEVICES")
