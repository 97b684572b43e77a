"""Datasets of grain, read as Keras's adapter reads them: keras-hub makes them, and users of JAX have little else."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Wrap, case, compiled, data, dataset, full, mlp, trained
from hub import keras_hub


class Rows:
    """A source of rows, as dicts or tuples."""

    def __init__(self, samples: int = 37) -> None:
        self.x, self.y = data(samples)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Any) -> Any:
        return self.x[index], self.y[index]


def source() -> Any:
    """A MapDataset, None where grain is not installed."""
    if keras_hub() is None:
        return None
    import grain

    return grain.MapDataset.source(Rows())


@case
def map_datasets(wrap: Wrap) -> Any:
    rows = source()
    return None if rows is None else dataset(wrap, rows.shuffle(seed=3).batch(8), validation_data=rows.batch(6))


@full
@case
def mapped_rows(wrap: Wrap) -> Any:
    rows = source()
    if rows is None:
        return None
    return dataset(wrap, rows.map(lambda row: (row[0] * 2, row[1])).batch(8, drop_remainder=True))


@case
def iterated_datasets(wrap: Wrap) -> Any:
    rows = source()
    if rows is None:
        return None
    batches = rows.seed(5).shuffle().to_iter_dataset().batch(8)
    return dataset(wrap, batches, validation_data=rows.to_iter_dataset().batch(5))


@full
@case
def repeated_datasets(wrap: Wrap) -> Any:
    rows = source()
    if rows is None:
        return None
    model = compiled(wrap(mlp()))
    found = []
    for batches in (rows.shuffle(seed=1).repeat(4).batch(8), rows.repeat().shuffle(seed=2).to_iter_dataset().batch(8)):
        options = {"steps_per_epoch": 5, "validation_data": rows.repeat().batch(9), "validation_steps": 2}
        found.append(trained(model, model.fit(batches, epochs=3, verbose=0, **options)))
    return found


@full
@case
def random_maps(wrap: Wrap) -> Any:
    rows = source()
    if rows is None:
        return None

    def noisy(row: Any, random: np.random.Generator) -> Any:
        return row[0] + random.normal(size=row[0].shape), row[1]

    return dataset(wrap, rows.seed(7).random_map(noisy).batch(8))


@full
@case
def data_loaders(wrap: Wrap) -> Any:
    if keras_hub() is None:
        return None
    import grain

    sampler = grain.samplers.IndexSampler(37, shuffle=True, num_epochs=1, seed=4)
    loader = grain.DataLoader(data_source=Rows(), sampler=sampler, operations=[grain.transforms.Batch(8)])
    return dataset(wrap, loader)
