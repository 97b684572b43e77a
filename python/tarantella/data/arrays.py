"""Arrays as input: Keras's adapter for them, and the number of rows."""

from __future__ import annotations

from typing import Any

from keras import tree

from ..keras import private
from ..keras.private import ArrayDataAdapter

can_distribute = private.can_convert_arrays


def adapt(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool | str = False,
    class_weight: Any = None,
) -> ArrayDataAdapter:
    """Keras's adapter for the arrays. Raises Keras's ValueError if lengths or structures do not match."""
    leaves = [leaf for leaf in tree.flatten((x, y, sample_weight)) if leaf is not None]
    if any(len(leaf.shape) == 0 or leaf.shape[0] == 0 for leaf in leaves if hasattr(leaf, "shape")):
        raise ValueError("the data is empty: every array needs at least one row")
    return ArrayDataAdapter(
        x,
        y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps=steps,
        shuffle=shuffle,
        class_weight=class_weight,
    )


def rows(batch: Any) -> int:
    """The number of rows of arrays in any structure. Raises ValueError for other values, and if lengths differ."""
    if not can_distribute(batch):
        raise ValueError("a batch must be arrays or tensors, or lists, tuples or dicts of them")
    return private.rows_of(adapt(*batch))
