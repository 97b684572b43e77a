"""Messages for the user: on rank 0, or on all ranks with TNT_LOG_ON_ALL_DEVICES."""

from __future__ import annotations

import logging
from typing import Any

from .environment import flag, layout, log_level

logger = logging.getLogger("tarantella")
_logged: set[str] = set()


class _Format(logging.Formatter):
    def __init__(self, everywhere: bool) -> None:
        self._start = f"tarantella [rank {layout().rank}]: " if everywhere else "tarantella: "
        super().__init__()

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, the name is that of logging
        level = "" if getattr(record, "is_notice", False) else f"{record.levelname}: "
        return f"{self._start}{level}{record.message}"


def configure() -> None:
    """Sets level and format from TNT_LOG_LEVEL and TNT_LOG_ON_ALL_DEVICES. Idempotent."""
    if any(isinstance(handler.formatter, _Format) for handler in logger.handlers):
        return
    everywhere = flag("TNT_LOG_ON_ALL_DEVICES")
    if layout().rank != 0 and not everywhere:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        return
    logger.setLevel(log_level("TNT_LOG_LEVEL"))
    handler = logging.StreamHandler()
    handler.setFormatter(_Format(everywhere and layout().size > 1))
    logger.addHandler(handler)
    logger.propagate = False


def warn_once(message: str) -> None:
    """Logs a WARNING, unless this process has logged the same one before."""
    if message not in _logged:
        _logged.add(message)
        logger.warning(message)


def notice(message: str, *args: Any) -> None:
    """Logs a message at the level of warnings, without the word WARNING: nothing is wrong."""
    logger.warning(message, *args, extra={"is_notice": True})


def abbreviated(names: list[str], most: int = 3) -> str:
    """The first `most` names and the number of the others: "a, b, c and 2 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
