"""Keeps the cores of this rank from going idle, where the machine permits it and TNT_KEEP_AWAKE wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import log, runtime
from .environment import flag_or_auto

_said: set[str] = set()


def wish() -> bool | None:
    """The value of TNT_KEEP_AWAKE; None for auto."""
    return flag_or_auto("TNT_KEEP_AWAKE")


def permitted() -> bool:
    """Whether `kept` does anything here. If not, a line of the log says why, once."""
    with kept() as is_kept:
        return is_kept


@contextlib.contextmanager
def kept() -> Iterator[bool]:
    """In its body, threads of idle priority keep this rank's cores busy; yields False where this is not permitted.

    Then a line of the log says why, once: a WARNING if TNT_KEEP_AWAKE is 1. With auto it is not permitted for ranks of
    several CPUs.
    """
    context, wanted = runtime.context(), wish()
    reason = context.keep_awake(several=wanted is True)
    if reason is not None and reason not in _said:
        _said.add(reason)
        say = log.logger.warning if wanted else log.logger.info
        say("cores are not kept from going idle, because %s", reason)
    try:
        yield reason is None
    finally:
        if reason is None:
            context.let_sleep()
