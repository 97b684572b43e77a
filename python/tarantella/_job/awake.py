"""Keeps the cores of this rank from going idle while it trains: the step after a wait takes longer otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import log, runtime
from .environment import flag_or_auto

_said: set[str] = set()


@contextlib.contextmanager
def kept_awake() -> Iterator[None]:
    """In its body, threads of idle priority keep this rank's cores busy, as TNT_KEEP_AWAKE says.

    Where the machine does not permit it, a line of the log says why: a WARNING if TNT_KEEP_AWAKE is 1.
    """
    wish = flag_or_auto("TNT_KEEP_AWAKE")
    if wish is False:
        yield
        return
    context = runtime.context()
    reason = context.keep_awake(several=wish is True)
    if reason is not None and reason not in _said:
        _said.add(reason)
        say = log.logger.warning if wish else log.logger.info
        say("steps may be slower: cores are not kept from going idle, because %s", reason)
    try:
        yield
    finally:
        context.let_sleep()
