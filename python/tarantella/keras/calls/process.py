"""What the first wrapped model brings about in the whole process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._job import runtime
from ...data.adapter import ShardedAdapter
from .. import compatibility, files, hooks, private, written
from . import fit, on_batch, takeover


def install() -> None:
    """Hooks Keras's methods that train and functions that save; on several ranks verifies Keras first. Idempotent.

    Also on one rank the functions that save take a tarantella.Model, and write whole files after Keras has asked about
    overwriting: nothing nearer to the user sees both. Raises NotImplementedError on several ranks for a Keras whose
    private names are not as they must be.
    """
    files.hook_writers()
    takeover.install(
        {
            "fit": fit.fit,
            "evaluate": fit.evaluate,
            "predict": fit.predict,
            "train_on_batch": on_batch.train,
            "test_on_batch": on_batch.test,
            "predict_on_batch": on_batch.predict,
        }
    )
    hooks.hook(private.data_adapters, "get_data_adapter", _or_micro_batches)
    if runtime.get_size() > 1:
        compatibility.check()
        written.hook_loading()
        files.hook_checkpoints()


def _or_micro_batches(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets early Keras 3 take an adapter where data is expected, as later ones do by themselves."""

    def get_data_adapter(x: Any, *arguments: Any, **options: Any) -> Any:
        return x if isinstance(x, ShardedAdapter) else original(x, *arguments, **options)

    return get_data_adapter
