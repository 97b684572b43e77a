"""The error classes of a job: those of the core, or substitutes in a job of one rank, which runs without it."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from .environment import layout

if TYPE_CHECKING or layout().size > 1:
    from .._core import Error, MismatchError, PeerLostError, TimeoutError
else:

    class Error(RuntimeError):
        """A job of several ranks cannot continue."""

    class PeerLostError(Error):
        """Another rank ended or left."""

    class MismatchError(Error):
        """Ranks make different calls, or exchange different shapes, dtypes or models."""

    class TimeoutError(Error, builtins.TimeoutError):
        """A rank did not take part before the deadline."""


# The name by which they are shown and pickled.
for _class in (Error, PeerLostError, MismatchError, TimeoutError):
    _class.__module__ = "tarantella"

__all__ = ["Error", "MismatchError", "PeerLostError", "TimeoutError"]
