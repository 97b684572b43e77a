"""The public interface to the distribution of a tf.data.Dataset: `Dataset`, `distribute` and `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from ..._job import log, runtime
from ...keras.private import TFDatasetAdapter
from ..rows import rows_of_rank
from . import from_batches, rewrite, structure
from .rewrite import cached_map

_FILES = 1  # of AutoShardDataset: by file, an error without files


class Dataset:
    """A dataset of global batches and the way to distribute it. fit and evaluate accept it as x.

    Args:
        dataset: A tf.data.Dataset of global batches.
        num_ranks: The number of ranks; by default that of the job.
        rank: This rank; by default that of the job.
        shuffle_seed: Is ignored, with a WARNING: shuffles without a seed are the same on all ranks.
        shard: With `"file"` every rank reads its own files. This is faster but not exact: batches contain other rows
            than on one process, and ranks may end at different times. By default it behaves as the dataset itself.

    Raises:
        ValueError: There is no such `shard`.

    Example:
    >>> import tensorflow as tf, tarantella as tnt
    >>> tnt.data.Dataset(tf.data.Dataset.range(8).batch(4), num_ranks=2, rank=0).micro_batch_size
    2
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        num_ranks: int | None = None,
        rank: int | None = None,
        shuffle_seed: int | None = None,
        shard: str | None = None,
    ) -> None:
        if shuffle_seed is not None:
            log.warn_once(
                "tarantella.data.Dataset ignores shuffle_seed: shuffles without a seed are the same on all ranks; for "
                "another order pass a seed to dataset.shuffle"
            )
        if shard not in (None, "file"):
            raise ValueError(f'shard must be None or "file" (got {shard!r})')
        self.dataset, self.shard = dataset, shard
        self.num_ranks = runtime.get_size() if num_ranks is None else num_ranks
        self.rank = runtime.get_rank() if rank is None else rank

    @property
    def micro_batch_size(self) -> int | None:
        """Rows of this rank in a full batch, None if the batch size is unknown.

        Raises ValueError if the dataset is not batched.
        """
        batch_size = self._batch_size()
        return None if batch_size is None else rows_of_rank(batch_size, self.rank, self.num_ranks)[1]

    def _batch_size(self) -> int | None:
        reason = from_batches.unbatched(self.dataset, "the dataset", {})
        if reason:
            raise ValueError(f"{reason}; batch it by the global batch size: dataset.batch(…)")
        return from_batches.batch_size(self.dataset)

    @property
    def num_samples(self) -> int | None:
        """Rows of all ranks in an epoch, None if infinite. Reads the whole dataset.

        Raises ValueError if the dataset is not batched.
        """
        self._batch_size()
        if int(self.dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            return None
        return sum(int(from_batches.length(batch)) for batch in self.dataset)

    def distribute_dataset_across_ranks(
        self, user_micro_batch_size: int | None = None, is_training: bool = True
    ) -> tf.data.Dataset:
        """The rows of this rank, batch by batch, for tnt_distribute_dataset=False.

        Raises ValueError if the dataset is not batched or `user_micro_batch_size` does not match the global batch size.
        """
        if user_micro_batch_size not in (None, self.micro_batch_size):
            raise ValueError(
                f"micro batches of {user_micro_batch_size} on {self.num_ranks} ranks make "
                f"{user_micro_batch_size} * {self.num_ranks} rows, but the dataset has batches of "
                f"{from_batches.batch_size(self.dataset)}"
            )
        if self.shard == "file":
            return self._files()
        local, batches = cached_map(self._micro_batches().filter(_has_rows), _data_of), int(self.dataset.cardinality())
        known = batches >= 0 and (from_batches.least_rows(self.dataset) or 0) >= self.num_ranks
        return local.apply(tf.data.experimental.assert_cardinality(batches)) if known else local

    def _micro_batches(self) -> tf.data.Dataset:
        return from_batches.distribute(TFDatasetAdapter(self.dataset), self.rank, self.num_ranks).get_tf_dataset()

    def _files(self) -> tf.data.Dataset:
        if not self.micro_batch_size:
            raise ValueError("shard='file' needs a dataset whose last operation is batch, with a row for each rank")
        log.warn_once(
            "shard='file': every rank reads its own files, so batches and results differ from those of one process"
        )
        try:
            files = rewrite.operated(
                self.dataset,
                tf.raw_ops.AutoShardDataset,
                self.dataset.element_spec,
                num_workers=self.num_ranks,
                index=self.rank,
                auto_shard_policy=_FILES,
            )
        except tf.errors.NotFoundError:
            raise ValueError("shard='file' needs a dataset that reads files, at least one for each rank") from None
        return files.rebatch(self.micro_batch_size)


def distribute(dataset: Any, num_ranks: int | None = None, rank: int | None = None) -> tf.data.Dataset:
    """Distributes a dataset for a custom training loop: pairs of this rank's rows and their share of the global batch.

    To get the gradients of one process, multiply a mean over rows by the share and sum the gradients over the ranks:
    `tarantella.distributed_optimizer(optimizer, op="sum")`.

    Args:
        dataset: A tf.data.Dataset or a `Dataset` of global batches, the same on all ranks.
        num_ranks: The number of ranks; by default that of the job. A `Dataset` has its own.
        rank: This rank; by default that of the job. A `Dataset` has its own.

    Returns:
        A tf.data.Dataset with the same number of elements on every rank. Each is a pair of a batch of the same
        structure, with consecutive rows, and a scalar of type keras.config.floatx(). The shares of all ranks add up to
        1. A rank without rows gets one padding row and the share 0.

    Raises:
        TypeError: It is no dataset.
        ValueError: It is not batched, it is sharded by files, or `num_ranks` or `rank` is given with a `Dataset`.

    Example:
    >>> import tensorflow as tf, tarantella as tnt
    >>> batches = tf.data.Dataset.range(8).batch(4)
    >>> [(x.shape[0], float(share)) for x, share in tnt.data.distribute(batches, num_ranks=2, rank=0)]
    [(2, 0.5), (2, 0.5)]
    """
    if isinstance(dataset, Dataset) and (num_ranks, rank) != (None, None):
        raise ValueError("pass num_ranks and rank to tarantella.data.Dataset(…), not to distribute")
    given = dataset if isinstance(dataset, Dataset) else Dataset(dataset, num_ranks, rank)
    if not isinstance(given.dataset, tf.data.Dataset):
        raise TypeError(
            f"distribute needs a tf.data.Dataset (got {type(given.dataset).__name__}); for arrays use "
            "tf.data.Dataset.from_tensor_slices(arrays).batch(…)"
        )
    given._batch_size()
    if given.shard == "file":
        raise ValueError("shard='file' has no global batches to take a share of; use distribute_dataset_across_ranks()")
    if given.num_ranks == 1:
        one = tf.ones((), keras.config.floatx())
        return tf.data.Dataset.zip((given.dataset, tf.data.Dataset.from_tensors(one).repeat()))
    return given._micro_batches().map(_with_share)


@tf.autograph.experimental.do_not_convert
def _with_share(batch: Any) -> Any:
    return batch.data, tf.cast(batch.rows / batch.metadata[1], keras.config.floatx())


@tf.autograph.experimental.do_not_convert
def _has_rows(batch: Any) -> tf.Tensor:
    return batch.rows > 0


def _data_of(batch: Any) -> Any:
    return batch.data


class Explanation(str):
    """Lines of text that an interactive session shows without quotes."""

    __repr__ = str.__str__


def explain(dataset: Any, num_ranks: int | None = None) -> Explanation:
    """Describes how ranks read, map and train on a dataset.

    Args:
        dataset: A tf.data.Dataset or a `Dataset`.
        num_ranks: The number of ranks; by default those of the job.

    Returns:
        Lines of text, to print.

    Raises:
        ValueError: The dataset is not batched.
    """
    given = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    size = given.num_ranks if num_ranks is None else num_ranks
    return Explanation("\n".join(_explained(given, size)))


def _explained(given: Dataset, size: int) -> Iterator[str]:
    batch_size = given._batch_size()
    if given.shard == "file":
        yield f"each of {size} ranks reads and maps its own files; not exact"
        return
    yield from_batches.who_maps(from_batches.plan(given.dataset))
    if batch_size and not structure.has_batches(given.dataset):
        yield f"no operation batches it: the first dimension of its elements, {batch_size}, is taken as the batch size"
    for rank in range(size):
        start, rows = rows_of_rank(batch_size or 0, rank, size)
        taken = f"rows {start} to {start + rows - 1}" if rows else "no rows"
        yield f"rank {rank} trains on {taken} of every {batch_size}" if batch_size else f"rank {rank}: 1/{size}"
    for file in filter(None, map(structure.cache_file, structure.every(given.dataset))):
        yield f"the cache {file} becomes one file per rank: {file}.rank0 …"
