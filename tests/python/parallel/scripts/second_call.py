"""Calls everything twice; prints what the second call has traced, and its iterators, as JSON."""

import json
import sys
from collections import Counter

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.framework import func_graph

import tarantella as tnt

counts: Counter[str] = Counter()


def counted(name, function):
    def call(*args, **kwargs):
        counts[name] += 1
        return function(*args, **kwargs)

    return call


trace = func_graph.func_graph_from_py_func
for module in list(sys.modules.values()):
    if getattr(module, "func_graph_from_py_func", None) is trace:
        module.func_graph_from_py_func = counted("traces", trace)
iterator_ops.OwnedIterator.__init__ = counted("iterators", iterator_ops.OwnedIterator.__init__)


class Stored(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, number):
        return x[6 * number :][:6], y[6 * number :][:6]


def in_batches():
    return (stored[number] for number in range(2))


x, y = np.ones((13, 4), "float32"), np.zeros((13, 1), "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
if tnt.get_size() > 1:
    model = tnt.Model(model)
model.compile("sgd", "mse", metrics=["mae"])

batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(6)
maps = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda a, b: (2 * a, b)).batch(6, drop_remainder=True)
stored = Stored()
own = {"tnt_distribute_dataset": False} if tnt.get_size() > 1 else {}
calls = {
    "fit arrays": lambda: model.fit(x, y, batch_size=6, verbose=0),
    "fit arrays in order": lambda: model.fit(x, y, batch_size=6, shuffle=False, verbose=0),
    "evaluate arrays": lambda: model.evaluate(x, y, batch_size=6, verbose=0),
    "predict arrays": lambda: model.predict(x, batch_size=6, verbose=0),
    "fit dataset": lambda: model.fit(batches, verbose=0),
    "fit dataset of maps": lambda: model.fit(maps, verbose=0),
    "fit with validation": lambda: model.fit(batches, validation_data=maps, verbose=0),
    "evaluate dataset": lambda: model.evaluate(batches, verbose=0),
    "predict dataset": lambda: model.predict(batches, verbose=0),
    "fit own data": lambda: model.fit(batches, verbose=0, **own),
    "fit generator": lambda: model.fit(in_batches(), verbose=0),
    "evaluate generator": lambda: model.evaluate(in_batches(), verbose=0),
    "fit PyDataset": lambda: model.fit(stored, verbose=0),
    "predict PyDataset": lambda: model.predict(stored, verbose=0),
    "train_on_batch": lambda: model.train_on_batch(x[:6], y[:6]),
    "test_on_batch": lambda: model.test_on_batch(x[:6], y[:6]),
    "predict_on_batch": lambda: model.predict_on_batch(x[:6]),
}
found = {}
for name, call in calls.items():
    for _ in range(2):
        counts.clear()
        call()
    found[name] = [counts["traces"], counts["iterators"]]
if tnt.is_master_rank():
    print(json.dumps(found))
