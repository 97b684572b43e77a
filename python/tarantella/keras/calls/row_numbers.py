"""Steps of the user's own that fail for a rank's rows of a batch, and would not for all of them: said in a sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..._backend import backend
from ..._job import runtime
from ...data.feed import Feed
from ...data.rows import share
from .. import differences, hooks, training


@contextlib.contextmanager
def explained(model: Any, kind: str, feed: Feed, spec: Any) -> Iterator[None]:
    """Raises ValueError in the place of an error that comes from the number of rows in a model's own `kind`_step.

    `spec` is the type of the micro batches. Whether it does is found out by tracing the step for both numbers, unless
    training steps of this call have run: then the error has another cause.
    """
    try:
        yield
    except backend.step_errors as error:
        reason = None
        if differences.is_own(model, f"{kind}_step") and not training.has_stepped(model):
            with contextlib.suppress(Exception):  # whatever the user's data raise: the first error is the one to show
                reason = _reason(model, kind, feed, spec)
        if reason is None:
            raise
        raise ValueError(reason) from error


def _reason(model: Any, kind: str, feed: Feed, spec: Any) -> str | None:
    whole = feed.rows_of_a_batch()
    mine = max(1, share(whole or 0, runtime.get_rank(), runtime.get_size())[1])
    step = hooks.original(model, f"{kind}_step")
    if whole is None or _traces(step, spec.data, mine) or not _traces(step, spec.data, whole):
        return None
    return (
        f"the {kind}_step of {model.name} fails for this rank's {mine} of the {whole} rows of a batch, and not for all "
        "of them: each rank takes its rows, along axis 0, of every part of a batch; let axis 0 be the rows, and where "
        "the step has a constant for their number take it from the batch: keras.ops.shape(x)[0]"
    )


def _traces(step: Any, spec: Any, rows: int) -> bool:
    try:
        backend.trace(step, spec, rows)
    except Exception:  # whatever user code raises
        return False
    return True
