"""Maps traced once: the same elements as dataset.map gives, for whatever comes next."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import tensorflow as tf

from tarantella.data.adapter import adapt_arrays
from tarantella.data.tf_data import from_arrays, from_batches, rewrite
from tarantella.data.tf_data.rewrite import cached_map, unbatched_rows
from tarantella.keras.private import TFDatasetAdapter

Point = namedtuple("Point", "x y")
traces: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_is_known():
    rewrite._known.clear()
    traces.clear()


def scaled(factor, *element):
    traces.append("scaled")
    return tf.nest.map_structure(lambda part: part * factor, element[0] if len(element) == 1 else element)


def elements(dataset):
    return [tf.nest.map_structure(lambda part: part.numpy().tolist(), element) for element in dataset]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.data.Dataset.range(3),
        lambda: tf.data.Dataset.range(3).map(lambda i: (i, 2 * i)),
        lambda: tf.data.Dataset.range(3).map(lambda i: {"b": i, "a": (i, 2 * i)}),
        lambda: tf.data.Dataset.range(3).map(lambda i: Point(i, 2 * i)),
        lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [], [2, 3]])),
        lambda: tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense([[0, 1], [2, 0]])),
    ],
)
def test_a_second_dataset_of_the_type_is_mapped_without_a_trace(make, parallel):
    first, second = (cached_map(make(), scaled, 3, parallel=parallel) for _ in range(2))
    assert len(traces) == 1
    assert second.element_spec == first.element_spec
    assert type(second.element_spec) is type(first.element_spec)
    assert int(second.cardinality()) == int(first.cardinality())
    for one, other in zip(first, second, strict=True):
        tf.nest.assert_same_structure(one, other)
        for a, b in zip(*(tf.nest.flatten(each, expand_composites=True) for each in (one, other)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_another_type_structure_or_argument_is_traced():
    both = tf.data.Dataset.zip((tf.data.Dataset.range(2), tf.data.Dataset.range(2)))
    assert elements(cached_map(both, scaled, 2)) == [(0, 0), (2, 2)]
    assert elements(cached_map(both, scaled, 3)) == [(0, 0), (3, 3)]
    points = cached_map(both.map(Point), scaled, 2)
    assert isinstance(points.element_spec, Point)
    assert elements(cached_map(tf.data.Dataset.range(2).map(lambda i: tf.cast(i, tf.float32)), scaled, 2.0)) == [
        0.0,
        2.0,
    ]
    assert elements(cached_map(tf.data.Dataset.range(4).batch(2), scaled, 2)) == [[0, 2], [4, 6]]
    assert elements(cached_map(tf.data.Dataset.range(4).batch(2, drop_remainder=True), scaled, 2)) == [[0, 2], [4, 6]]
    assert len(traces) == 6


def test_the_order_and_the_type_of_a_dict_are_kept():
    for keys in (("b", "a"), ("a", "b")):
        named = tf.data.Dataset.range(1).map(lambda i, keys=keys: dict.fromkeys(keys, i))
        assert tuple(cached_map(named, scaled, 2).element_spec) == keys
    ordered = tf.data.Dataset.range(1).map(lambda i: OrderedDict(a=i, b=i))
    assert isinstance(cached_map(ordered, scaled, 2).element_spec, OrderedDict)


def test_functions_of_the_user_live_no_longer_than_their_datasets():
    dataset = tf.data.Dataset.range(4).map(lambda i: 2 * i).batch(2)
    for _ in range(2):
        from_batches.distribute(TFDatasetAdapter(dataset), 0, 2)
    (function,) = from_batches.plan(dataset).functions
    assert len(function._tarantella_mapped) == 1
    function = weakref.ref(function)
    del dataset
    gc.collect()
    assert function() is None


def test_a_dataset_is_sliced_once_for_each_way_and_forgotten_with_it(monkeypatch):
    sliced = from_batches._sliced
    ways = []
    monkeypatch.setattr(
        from_batches, "_sliced", lambda dataset, planned, *way: ways.append(way) or sliced(dataset, planned, *way)
    )
    dataset = tf.data.Dataset.range(8).map(lambda i: 2 * i).batch(4)
    for rank, positions in ((0, False), (1, False), (0, True), (0, False)):
        from_batches.distribute(TFDatasetAdapter(dataset), rank, 2, positions)
    assert ways == [(0, 2, False), (1, 2, False), (0, 2, True)]
    kept, dataset = weakref.ref(dataset), None
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("deterministic", [None, False])
def test_a_dataset_that_was_sliced_before_shuffles_on_as_it_does(deterministic):
    def made():
        tf.random.set_seed(3)
        mapped_too = tf.data.Dataset.range(8).shuffle(8).map(lambda i: i, tf.data.AUTOTUNE, deterministic)
        return mapped_too.batch(4)

    whole, parts = made(), [made(), made()]
    for _ in range(3):
        halves = [
            list(from_batches.distribute(TFDatasetAdapter(each), rank, 2)._batches) for rank, each in enumerate(parts)
        ]
        found = [[*one.data.numpy(), *other.data.numpy()] for one, other in zip(*halves, strict=True)]
        assert found == [batch.numpy().tolist() for batch in whole]


def test_what_is_no_longer_known_lives_on_in_its_datasets():
    cached_map(tf.data.Dataset.range(3), scaled, 5)
    kept = cached_map(tf.data.Dataset.range(3), scaled, 5).prefetch(1)
    rewrite._known.clear()
    gc.collect()
    assert elements(kept) == [0, 5, 10]


def test_variables_that_a_function_reads_are_read_anew():
    variable = tf.Variable(2, dtype=tf.int64)

    def added(value):
        return value + variable

    first, second = (cached_map(tf.data.Dataset.range(2), added) for _ in range(2))
    assert elements(second) == [2, 3]
    variable.assign(10)
    assert elements(first) == elements(second) == [10, 11]


def test_unbatched_elements_are_the_rows():
    dataset = tf.data.Dataset.range(3).map(lambda i: (tf.stack([i, i]), (tf.stack([[i], [-i]]),)))
    assert unbatched_rows(dataset).element_spec == dataset.unbatch().element_spec
    assert elements(unbatched_rows(dataset)) == elements(dataset.unbatch())


def micro_batches(x, **options):
    return [batch.data.numpy().tolist() for batch in from_arrays.distribute(adapt_arrays(x, **options), 0, 2)._batches]


def test_arrays_that_were_changed_in_place_are_read_anew():
    x = np.zeros(4, "float32")
    assert micro_batches(x, batch_size=4) == [[0.0, 0.0]]
    x += 1
    assert micro_batches(x, batch_size=4) == [[1.0, 1.0]]


def test_the_order_that_is_kept_is_that_of_the_seed():
    x, orders = np.arange(64.0), []
    for seed in (1, 2, 1):
        tf.random.set_seed(seed)
        orders.append(micro_batches(x, batch_size=8, shuffle=True))
        fresh = from_arrays._order(64, 8, True, seed)
        assert orders[-1] == [x[rows[:4]].tolist() for rows in fresh.as_numpy_iterator()]
    assert orders[0] == orders[2] != orders[1]


@pytest.mark.parametrize("shuffle", [True, "batch", False])
@pytest.mark.parametrize(("samples", "batch_size"), [(10, 3), (8, 4), (3, 8), (1, 1)])
@pytest.mark.parametrize("seed", [5, None])
def test_an_order_that_is_kept_has_the_batches_of_every_epoch(shuffle, samples, batch_size, seed):
    tf.random.set_seed(seed)
    kept = from_arrays._kept_order(samples, batch_size, shuffle, seed)
    fresh = from_arrays._order(samples, batch_size, shuffle, seed)
    for _ in range(2):
        one, other = ([each.tolist() for each in order.as_numpy_iterator()] for order in (kept, fresh))
        assert [len(batch) for batch in one] == [len(batch) for batch in other]
        assert one == other or (shuffle and seed is None)
        assert sorted(row for batch in one for row in batch) == list(range(samples))
