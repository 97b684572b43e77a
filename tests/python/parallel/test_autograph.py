"""AutoGraph converts user-defined functions only: converting ours or Keras's would take time and leave files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_only_functions_of_the_users_are_converted(scripts: Any, tmp_path: Path) -> None:
    source = """
    import os, keras, numpy as np, tensorflow as tf
    import tarantella as tnt

    def users(x, y):
        if tf.reduce_sum(x) > 0:  # needs AutoGraph
            x += 1.0
        return x, y

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2
        def __getitem__(self, index):
            return tf.function(users)(x[:4], y[:4])

    x, y = np.ones((10, 3), "float32"), np.ones((10, 1), "float32")
    model = tnt.Model(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
    model.compile("sgd", "mse")
    rows = tf.data.Dataset.from_tensor_slices((x, y)).map(users)
    model.fit(x, y, batch_size=4, verbose=0)
    for data in (
        rows.batch(4),  # cut before the map
        rows.batch(4).map(users),  # cut after it
        Batches(),
    ):
        model.fit(data, epochs=0)  # makes the dataset, and traces no step
    model.fit(rows.batch(2), epochs=0, tnt_distribute_dataset=False)
    tnt.data.Dataset(rows.batch(4)).distribute_dataset_across_ranks()
    model.predict(x, batch_size=4, verbose=0)
    tnt.Barrier().execute()
    os._exit(3)  # as a rank that is stopped: nothing tidies up
    """
    folder = tmp_path / "temporary"
    folder.mkdir()
    ended = scripts.ranks(2, source, TMPDIR=str(folder))
    assert ended.code == 3, ended.err
    generated = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert generated
    assert {name for text in generated.values() for name in re.findall(r"def tf__(\w+)", text)} == {"users"}
