"""What the first wrapped model brings about in the whole process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._job import runtime
from ...data.adapter import MicroBatches
from .. import files, hooks, private
from . import proof


def install() -> None:
    """Hooks Keras's functions that save, and on several ranks verifies Keras and hooks what reads data. Idempotent.

    Also on one rank the functions that save take a tarantella.Model, and write whole files after Keras has asked about
    overwriting: nothing nearer to the user sees both. Raises NotImplementedError on several ranks for a Keras whose
    private names are not as they must be.
    """
    files.hook_writers()
    if runtime.get_size() > 1:
        proof.once()
        hooks.hook(private.data_adapters, "get_data_adapter", _or_micro_batches)


def _or_micro_batches(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets early Keras 3 take an adapter where data is expected, as later ones do by themselves."""

    def get_data_adapter(x: Any, *arguments: Any, **options: Any) -> Any:
        return x if isinstance(x, MicroBatches) else original(x, *arguments, **options)

    return get_data_adapter
