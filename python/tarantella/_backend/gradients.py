"""What steps and a backend say to each other of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol


class Gradients(Protocol):
    """What a step does with the gradients that its code takes."""

    static_rows: tuple[int, ...]  # the numbers of rows of the step's batch that are known

    @property
    def traced_for(self) -> object:
        """What functions are traced for now: their traces for another object, or outside of steps, are not used."""

    def note_call(self, variables: set[int]) -> None:
        """Notes that a function which an eager step calls has summed the gradients of these."""

    def takes(self, source: Any) -> bool:
        """Whether gradients of this source are summed over the ranks."""

    def is_keras_own(self, differentiable: bool) -> bool:
        """Whether gradients that are taken now are those of Keras's own step. `differentiable`: as for `sums`."""

    def weight(self) -> Any:
        """What this rank's gradients are multiplied by before they are summed, a scalar; None for 1."""

    def local(self) -> AbstractContextManager[None]:
        """Meanwhile no source's gradients are summed."""

    def sums(self, gradients: Sequence[Any], sources: Sequence[Any], differentiable: bool) -> list[Any]:
        """The sums over the ranks of this rank's gradients, already multiplied; None stays None. Collective."""

    def error_of_one_row(self) -> Exception:
        """What to raise where a gradient of a single row would be summed."""


class Upstream(NamedTuple):
    """What a gradient is computed from. Constants, variables and sums over the ranks are alike on all ranks."""

    sums: bool  # sums over the ranks
    random: bool  # random numbers
    own: bool  # this rank's rows, or what cannot be told
