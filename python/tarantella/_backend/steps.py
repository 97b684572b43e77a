"""What runs in the place of Keras's steps, and how a backend calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

# An owner, the name of its method, and what makes the hook of this method.
Hook = tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]
RunStep = Callable[[str, Any, "Call"], Any]


class Undo(NamedTuple):
    """A step to be undone where a condition, a scalar bool, holds: there this rank has no rows of its own."""

    condition: Any
    variables: Sequence[Any]  # that get back their earlier values
    # Restored only if the step assigns them values from this rank's rows; values from sums over ranks stay. Eagerly
    # this is unknown, so all are restored.
    where_own: Sequence[Any]
    kept: Callable[[], Sequence[Any]]  # called after the step: variables of both that stay


class Call(Protocol):
    """Keras's step."""

    def __call__(self, data: Any, undo: Undo | None = None) -> Any:
        """Runs it on data and returns its logs or outputs."""
