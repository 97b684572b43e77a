"""The rows of all ranks together are the dataset, for any length, batch size, number of ranks and operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs import TIER

pytest.importorskip("tensorflow")

import keras
import numpy as np
import tensorflow as tf

import tarantella as tnt
from tarantella.data import adapter
from tarantella.data.adapter import adapt
from tarantella.data.rows import rows_of_rank
from tarantella.data.tf_data import from_arrays, from_batches, slicer
from tarantella.keras.private import TFDatasetAdapter

# The same examples in each run, so that no change fails for another's; `make test-all` looks for new ones.
slowly = settings(
    max_examples=10 if TIER == "gate" else 25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=TIER != "all",
)


def doubled(row: Any) -> Any:
    return row * 2


def paired(row: Any) -> Any:
    return {"x": tf.cast(row, tf.float32), "y": row + 1}


def of_all(leaves: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: leaf - tf.reduce_max(leaf), leaves)


BEFORE = {
    "map": lambda d: d.map(doubled),
    "parallel map": lambda d: d.map(doubled, num_parallel_calls=2),
    "shuffle": lambda d: d.shuffle(7, seed=1),
    "filter": lambda d: d.filter(lambda row: row % 3 != 1),
    "repeat": lambda d: d.repeat(2),
    "take": lambda d: d.take(9),
    "cache": lambda d: d.cache(),
    "prefetch": lambda d: d.prefetch(1),
    "structure": lambda d: d.map(lambda row: row if isinstance(row, dict) else paired(row)),
    "interleave": lambda d: d.interleave(lambda row: tf.data.Dataset.from_tensors(row).repeat(2), cycle_length=2),
}
AFTER = {
    "map": lambda d: d.map(of_all),
    "repeat": lambda d: d.repeat(2),
    "take": lambda d: d.take(2),
    "skip": lambda d: d.skip(1),
    "shuffle": lambda d: d.shuffle(3, seed=2),
    "prefetch": lambda d: d.prefetch(2),
    "cache": lambda d: d.cache(),
}


def chained(length: int, before: list[str], batch: int, drop: bool, after: list[str]) -> tf.data.Dataset:
    dataset = tf.data.Dataset.range(length)
    for name in before:
        if isinstance(dataset.element_spec, dict) and name not in ("shuffle", "repeat", "take", "cache", "prefetch"):
            continue
        dataset = BEFORE[name](dataset)
    dataset = dataset.batch(batch, drop_remainder=drop)
    for name in after:
        dataset = AFTER[name](dataset)
    return dataset


@slowly
@given(
    st.integers(1, 40),
    st.lists(st.sampled_from(list(BEFORE)), max_size=4),
    st.integers(1, 12),
    st.booleans(),
    st.lists(st.sampled_from(list(AFTER)), max_size=3),
    st.integers(2, 5),
)
def test_the_ranks_rows_are_the_datasets(
    length: int, before: list[str], batch: int, drop: bool, after: list[str], size: int
) -> None:
    # A dataset of its own for each: the second reader of one dataset sees its second shuffle.
    def new() -> tf.data.Dataset:
        return chained(length, before, batch, drop, after)

    ranks = [list(from_batches.distribute(TFDatasetAdapter(new()), r, size).get_tf_dataset()) for r in range(size)]
    whole = list(new())
    assert {len(rank) for rank in ranks} == {len(whole)}
    for number, global_batch in enumerate(whole):
        parts = [rank[number] for rank in ranks]
        assert len({int(part.metadata[2]) for part in parts}) == 1
        counted = [tf.nest.map_structure(lambda leaf, n=int(p.metadata[0]): leaf[:n].numpy(), p.data) for p in parts]
        together = tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *counted)
        tf.nest.map_structure(np.testing.assert_array_equal, together, global_batch)
        total = int(from_batches.length(global_batch))
        assert [int(part.metadata[1]) for part in parts] == [total] * size
        assert [int(part.metadata[0]) for part in parts] == [rows_of_rank(total, rank, size)[1] for rank in range(size)]
        assert all(int(from_batches.length(part.data)) >= 1 for part in parts)  # layers never run on an empty batch


@pytest.mark.parametrize("size", [1, 2, 3])
def test_shares_for_a_loop(size: int) -> None:
    dataset = tf.data.Dataset.range(7).map(lambda i: {"a": i, "b": i + 1}).batch(3)  # the last batch has one row
    ranks = [list(tnt.data.distribute(dataset, size, rank)) for rank in range(size)]
    for batch, *parts in zip(dataset, *ranks, strict=True):
        shares_of_ranks = [float(share) for _, share in parts]
        assert sum(shares_of_ranks) == pytest.approx(1)
        rows = [part["a"].numpy() for part, share in parts if share > 0]
        assert shares_of_ranks[: len(rows)] == pytest.approx([len(each) / len(batch["a"]) for each in rows])
        np.testing.assert_array_equal(np.concatenate(rows), batch["a"])
        assert all(len(part["b"]) >= 1 for part, _ in parts)


@pytest.mark.parametrize("twice", [{"num_ranks": 4}, {"rank": 1}, {"num_ranks": 4, "rank": 0}])
def test_ranks_of_a_loop_are_given_once(twice: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"pass num_ranks and rank to tarantella\.data\.Dataset"):
        tnt.data.distribute(tnt.data.Dataset(tf.data.Dataset.range(7).batch(3)), **twice)


@slowly
@given(st.integers(1, 30), st.integers(1, 9), st.integers(2, 4), st.sampled_from(["generator", "PyDataset"]))
def test_the_ranks_rows_are_those_of_python(length: int, batch: int, size: int, kind: str) -> None:
    rows = np.arange(length)

    class Rows(keras.utils.PyDataset):
        def __len__(self) -> int:
            return -(-length // batch)

        def __getitem__(self, index: int) -> Any:
            return (rows[index * batch :][:batch],)

    def new() -> Any:
        return Rows() if kind == "PyDataset" else (Rows()[i] for i in range(len(Rows())))

    ranks = [list(from_batches.distribute(adapt(new()), rank, size).get_tf_dataset()) for rank in range(size)]
    found = [part.data[0][: int(part.metadata[0])].numpy() for parts in zip(*ranks, strict=True) for part in parts]
    np.testing.assert_array_equal(np.concatenate(found), rows)


@pytest.mark.parametrize("size", [2, 3])
def test_a_map_runs_on_this_ranks_rows_only(size: int) -> None:
    calls = []

    def expensive(row: Any) -> Any:
        calls.append(row)
        return row

    def mapped(row: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(expensive, [row], tf.int64, stateful=False), [])

    source = tf.data.Dataset.range(100).shuffle(100, seed=1).map(mapped, num_parallel_calls=2).batch(8).prefetch(1)
    for rank in range(size):
        calls.clear()
        list(from_batches.distribute(TFDatasetAdapter(source), rank, size).get_tf_dataset())
        assert len(calls) <= 100 / size + 8


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (lambda d: d.map(lambda row: tf.random.uniform([])).batch(2), "its map calls RandomUniform"),
        (lambda d: d.map(lambda row: tf.py_function(lambda r: r, [row], tf.int64)).batch(2), "its map calls EagerPy"),
        (lambda d: d.map(doubled).batch(2).map(of_all), "its last operation is Map, not batch"),
        (lambda d: d.map(doubled).shuffle(3).batch(2), "the operation before batch is Shuffle, not map"),
        (lambda d: d.map(doubled).padded_batch(2), "its last operation is PaddedBatch"),
        (lambda d: d.map(tf.range).map(tf.size).batch(2), None),
        (lambda d: d.map(doubled).window(2).flat_map(lambda w: w.batch(2)).map(tf.size).batch(2), "not dense"),
    ],
)
def test_maps_that_may_be_impure_are_not_split_before(source: Any, reason: str | None) -> None:
    """Random numbers, maps over a global batch: all ranks map all rows, and the reason is logged."""
    dataset = source(tf.data.Dataset.range(8))
    plan = from_batches.plan(dataset)
    assert isinstance(plan, from_batches.Plan) if reason is None else reason in str(plan)
    assert (reason or "maps its own rows only") in from_batches.who_maps(plan)


@pytest.mark.parametrize("after", [[], ["prefetch"], ["map"]])
def test_a_cache_file_is_one_of_each_rank(tmp_path: Path, after: list[str]) -> None:
    source = tf.data.Dataset.range(10).map(doubled).cache(str(tmp_path / "rows")).batch(4)
    for name in after:
        source = AFTER[name](source)
    readers = [iter(from_batches.distribute(TFDatasetAdapter(source), rank, 2).get_tf_dataset()) for rank in range(2)]
    rows = [part.data.numpy() for step in zip(*readers, strict=True) for part in step]  # both at the same time
    np.testing.assert_array_equal(np.concatenate(rows), np.concatenate(list(source.as_numpy_iterator())))
    for rank in range(2):
        assert (tmp_path / f"rows.rank{rank}.index").exists()


GIVEN_AWAY = {
    "map": lambda rows, f: rows.map(f, num_parallel_calls=4, deterministic=False),
    "interleave": lambda rows, f: rows.interleave(
        lambda row: tf.data.Dataset.from_tensors(row).map(f), 4, num_parallel_calls=4, deterministic=False
    ),
    "within": lambda rows, f: rows.batch(8).flat_map(
        lambda some: tf.data.Dataset.from_tensor_slices(some).map(f, num_parallel_calls=4, deterministic=False)
    ),
}


@pytest.mark.parametrize("how", list(GIVEN_AWAY))
def test_deterministic_false_is_ignored(how: str) -> None:
    import time

    def slow_at_first(row: Any) -> Any:
        time.sleep(0.2 if row == 0 else 0)
        return row

    def mapped(row: Any) -> Any:
        return tf.ensure_shape(tf.py_function(slow_at_first, [row], tf.int64), [])

    source = GIVEN_AWAY[how](tf.data.Dataset.range(8), mapped).batch(4)
    rows = [part.data.numpy() for part in from_batches.distribute(TFDatasetAdapter(source), 0, 1).get_tf_dataset()]
    np.testing.assert_array_equal(np.concatenate(rows), np.arange(8))


def brightened() -> Any:
    return lambda image: tf.image.random_brightness(tf.image.random_flip_left_right(image), 0.2)


def flipped_in_a_branch() -> Any:
    return tf.function(lambda image: tf.cond(tf.random.uniform([]) > 0.5, lambda: -image, lambda: image))


def by_a_layer() -> Any:
    layer = keras.layers.RandomTranslation(0.2, 0.2)
    return lambda image: layer(image, training=True)


def by_a_generator() -> Any:
    generator = tf.random.Generator.from_seed(3)
    return lambda image: image + generator.normal([16, 16, 1])


@pytest.mark.parametrize("new", [brightened, flipped_in_a_branch, by_a_layer, by_a_generator])
def test_random_numbers_of_a_parallel_map_are_those_of_a_sequential_one(new: Any) -> None:
    """So that all ranks see the same; by itself TensorFlow hands them out as its threads happen to ask."""
    images = tf.random.stateless_uniform([400, 16, 16, 1], [1, 2])
    options = tf.data.Options()
    options.threading.private_threadpool_size = 8

    def source(calls: int | None) -> tf.data.Dataset:
        keras.utils.set_random_seed(4)
        rows = tf.data.Dataset.from_tensor_slices(images).map(new(), num_parallel_calls=calls)
        return rows.batch(50).with_options(options)

    micro = [from_batches.distribute(TFDatasetAdapter(source(8)), rank, 2).get_tf_dataset() for rank in range(2)]
    parts = [np.concatenate([part.data for part in step]) for step in zip(*micro, strict=True)]
    np.testing.assert_array_equal(parts, list(source(None)))


def test_dataset_objects_give_the_rows_of_each_rank() -> None:
    rows = tf.data.Dataset.range(11).batch(4)
    parts = [tnt.data.Dataset(rows, num_ranks=3, rank=rank) for rank in range(3)]
    assert [part.micro_batch_size for part in parts] == [2, 1, 1]
    assert {part.num_samples for part in parts} == {11}
    found = [[batch.tolist() for batch in part.distribute_dataset_across_ranks().as_numpy_iterator()] for part in parts]
    assert found == [[[0, 1], [4, 5], [8]], [[2], [6], [9]], [[3], [7], [10]]]
    with pytest.raises(ValueError, match=r"3 \* 3 rows"):
        parts[0].distribute_dataset_across_ranks(3)
    with pytest.raises(ValueError, match="shard must be"):
        tnt.data.Dataset(rows, shard="row")
    with pytest.raises(ValueError, match="not batched"):
        tnt.data.Dataset(rows.unbatch()).micro_batch_size  # noqa: B018


@pytest.mark.parametrize(
    ("samples", "batched", "length"),
    [
        (11, lambda rows: rows.batch(4), 3),
        (10, lambda rows: rows.batch(4), tf.data.UNKNOWN_CARDINALITY),  # the last one has no row for the third rank
        (10, lambda rows: rows.map(doubled).batch(4, drop_remainder=True).prefetch(1), 2),
        (12, lambda rows: rows.filter(lambda row: row > 0).batch(4), tf.data.UNKNOWN_CARDINALITY),
    ],
)
def test_what_a_rank_takes_by_itself_says_its_length_where_it_is_known(samples: int, batched: Any, length: int) -> None:
    rows = batched(tf.data.Dataset.range(samples))
    parts = [tnt.data.Dataset(rows, num_ranks=3, rank=rank).distribute_dataset_across_ranks() for rank in range(3)]
    assert {int(part.cardinality()) for part in parts} == {length}
    assert length < 0 or {len(list(part)) for part in parts} == {length}


def test_a_seed_that_is_not_followed_is_named(caplog: Any) -> None:
    with caplog.at_level("WARNING", logger="tarantella"):
        tnt.data.Dataset(tf.data.Dataset.range(4).batch(2), shuffle_seed=7)
    assert "ignores shuffle_seed" in caplog.text


TWO = {"source": (None, 6, 4), "prefix": (None, None)}


@pytest.mark.parametrize(
    ("inputs", "shapes", "batched"),
    [
        ({"prefix": np.zeros((20, 4)), "source": np.zeros((20, 6, 4))}, TWO, True),
        ((np.zeros((20, 6, 4)), np.zeros((20, 4))), TWO, True),
        ({"prefix": np.zeros((20, 6)), "source": np.zeros((20, 6, 4))}, TWO, False),
        ({"other": np.zeros((20, 5, 5))}, TWO, True),
        (np.zeros((20, 5)), {"x": (None, 5)}, True),
        (np.zeros((20, 5)), {"x": (None, 5)}, False),
        (np.zeros(20), {"x": (None, 1)}, True),
    ],
)
def test_a_dataset_without_batches_is_told_by_the_inputs_names(inputs: Any, shapes: Any, batched: bool) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((inputs,))
    reason = from_batches.unbatched(dataset.batch(6) if batched else dataset, "data", shapes)
    assert (reason is None) == batched, reason


def test_one_number_for_a_batch_goes_to_every_rank() -> None:
    batches = tf.data.Dataset.range(5).batch(2).map(lambda rows: (rows, tf.reduce_max(rows)))
    assert from_batches.unbatched(batches, "data", {}) is None
    rows = tf.data.Dataset.range(5).map(lambda row: (tf.range(3), row))
    assert "elements contain scalars" in str(from_batches.unbatched(rows, "data", {}))
    ranks = [list(from_batches.distribute(TFDatasetAdapter(batches), rank, 2).get_tf_dataset()) for rank in range(2)]
    assert [[int(part.data[1]) for part in rank] for rank in ranks] == [[1, 3, 4]] * 2


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: (tf.tensor_scatter_nd_update(x, [[3, 1]], [9.0]), y),
        lambda x, y: (x, tf.tensor_scatter_nd_update(y, [[5]], ["other"])),
        lambda x, y: (tf.reverse(x, [0]), tf.reverse(y, [0])),
        lambda x, y: (y, x),
    ],
)
def test_every_value_of_a_global_batch_and_its_place_are_in_its_fingerprint(other: Any) -> None:
    batch = tf.random.stateless_uniform([8, 2], [1, 2]), tf.as_string(tf.range(8))
    total = tf.constant(8, tf.int64)
    marks = [int(slicer.fingerprint(list(leaves), total)) for leaves in (batch, batch, other(*batch))]
    assert marks[0] == marks[1] != marks[2]


@pytest.mark.parametrize("kind", ["array", "view", "strings", "sparse", "ragged"])
def test_every_value_of_an_array_is_in_its_checksum(kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(adapter, "_BLOCK", 64)
    make = {
        "array": np.asarray,
        "view": lambda rows: np.asfortranarray(rows)[:, ::2],
        "strings": lambda rows: rows.astype(str).astype(object)[:, 0],
        "sparse": tf.sparse.from_dense,
        "ragged": tf.RaggedTensor.from_tensor,
    }[kind]
    rows = np.arange(300.0).reshape(100, 3)
    other = rows.copy()
    other[41, 0] = -1
    sums = [from_arrays.checksum(from_arrays.sliceable(make(each))) for each in (rows, rows.copy(), other)]
    assert sums[0] == sums[1] != sums[2]


def test_of_a_huge_array_blocks_are_read_from_end_to_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(adapter, "_BLOCK", 16)
    monkeypatch.setattr(adapter, "_BLOCKS", 10)
    sums = {from_arrays.checksum(np.eye(1, 1000, at)[0]) for at in (0, 999)}
    unread = {from_arrays.checksum(np.eye(1, 1000, at)[0]) for at in range(2, 60)}
    assert len(sums | unread) == 3
    assert len(unread) == 1


def test_by_file_every_rank_reads_its_own(tmp_path: Path, caplog: Any) -> None:
    for file in range(4):
        (tmp_path / f"{file}.txt").write_text("".join(f"{file}{line}\n" for line in range(3)))
    names = [str(tmp_path / f"{file}.txt") for file in range(4)]
    source = tf.data.TextLineDataset(names).batch(4)
    with caplog.at_level("WARNING", logger="tarantella"):
        parts = [tnt.data.Dataset(source, 2, rank, shard="file").distribute_dataset_across_ranks() for rank in range(2)]
    found = [[line.decode() for batch in part.as_numpy_iterator() for line in batch] for part in parts]
    assert all(len(part) == 6 for part in found)
    assert sorted(found[0] + found[1]) == sorted(f"{file}{line}" for file in range(4) for line in range(3))
    assert not {line[0] for line in found[0]} & {line[0] for line in found[1]}
    assert "results differ" in caplog.text


def test_explain_says_who_reads_what(capsys: Any, tmp_path: Path) -> None:
    source = tf.data.Dataset.range(11).cache(str(tmp_path / "rows")).map(doubled).batch(4)
    explanation = tnt.data.explain(source, num_ranks=2)
    print(explanation)
    assert capsys.readouterr().out.splitlines() == [
        "every rank reads all elements and maps its own rows only",
        "rank 0 trains on rows 0 to 1 of every 4",
        "rank 1 trains on rows 2 to 3 of every 4",
        f"the cache {tmp_path}/rows becomes one file per rank: {tmp_path}/rows.rank0 …",
    ]
    assert repr(explanation) == str(explanation)  # what an interactive session shows


def test_a_torch_loader_is_split_as_well() -> None:
    torch = pytest.importorskip("torch")
    rows = torch.arange(11)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=4)
    ranks = [list(from_batches.distribute(adapt(loader), rank, 3).get_tf_dataset()) for rank in range(3)]
    found = [part.data[0][: int(part.metadata[0])].numpy() for parts in zip(*ranks, strict=True) for part in parts]
    np.testing.assert_array_equal(np.concatenate(found), rows.numpy())


@pytest.mark.parametrize(
    ("option", "value", "kept"), [(None, None, False), ("enabled", True, True), ("cpu_budget", 2, None)]
)
def test_autotuning_is_off_unless_the_dataset_sets_it(option, value, kept):
    """Its thread delays the end of every epoch."""
    source, options = tf.data.Dataset.range(8).batch(4), tf.data.Options()
    if option:
        setattr(options.autotune, option, value)
    distributed = from_batches.distribute(TFDatasetAdapter(source.with_options(options)), 0, 2).get_tf_dataset()
    assert distributed.options().autotune.enabled is kept
    assert option is None or getattr(distributed.options().autotune, option) == value
