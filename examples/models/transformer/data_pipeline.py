"""Batches of sentence pairs from TFRecords, and the share of them that each rank trains on.

Two layouts are known: the Model Garden's `wmt32k-train-00001-of-00100`, which has tokens (data_download.py writes it,
too), and `wmt14_translate-train.tfrecord-00000-of-00016`, text that TensorFlow Datasets prepares. Text is split into
tokens while it is read.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`

import tensorflow as tf
from common.errors import InputError
from common.records import find_shards, listed, record_lengths
from model_params import Params
from tokenizer import EOS, Subtokenizer

SHUFFLED_SENTENCES = 100_000
FILES_AT_A_TIME = 8  # a number, since all ranks must read in the same order
FILTERED_AT_A_TIME = 256
LOOKED_AT = 1000  # sentences that are compared with the vocabulary before training
CACHED_BYTES = 256 << 20  # of files: the sentences of smaller ones stay in memory after the first epoch


@dataclass(frozen=True)
class Layout:
    """How one program names its files."""

    name: str
    pattern: str
    splits: dict[str, str]
    folders: tuple[str, ...]  # where the files may be, below the data folder
    first: int  # the number of the first file
    has_tokens: bool


LAYOUTS = (
    Layout("the Model Garden", "wmt32k-{split}-*-of-*", {"train": "train", "dev": "dev"}, ("",), 1, has_tokens=True),
    Layout(
        "TensorFlow Datasets",
        "wmt14_translate-{split}.tfrecord-*-of-*",
        {"train": "train", "dev": "validation"},
        ("", "*/", "de-en/*/", "wmt14_translate/de-en/*/"),
        0,
        has_tokens=False,
    ),
)


@dataclass(frozen=True)
class Files:
    """The files of one split, and the sentence pairs in them."""

    layout: Layout
    paths: list[str]
    records: int

    def __str__(self) -> str:
        return re.sub(r"\d+-of-\d+$", "*", self.paths[0])


def find(params: Params, split: str) -> Files | None:
    """Returns the files of `split` ("train" or "dev") in `params["data_dir"]`; None for "dev" if there are none.

    Reads through the files, and raises InputError if one is truncated. With `params["skip_truncated"]` such files are
    left out, with a warning.
    """
    folder = Path(params["data_dir"])
    if not folder.is_dir():
        raise InputError(f"the data folder {folder} does not exist")
    for layout in LAYOUTS:
        pattern = layout.pattern.format(split=layout.splits[split])
        paths = find_shards(folder, (below + pattern for below in layout.folders), layout.first)
        if paths:
            return _whole_files(layout, paths, params)
    if split == "dev":
        return None
    known = " or ".join(layout.pattern.format(split=split) for layout in LAYOUTS)
    raise InputError(f"the data folder {folder} has no files {known}")


def _whole_files(layout: Layout, paths: list[Path], params: Params) -> Files:
    lengths = {path: record_lengths(path) for path in paths}
    broken = [path.name for path, (_, whole) in lengths.items() if not whole]
    if broken:
        say = listed(broken, f"of {len(paths):,} data files in {paths[0].parent} are truncated")
        if not params.get("skip_truncated"):
            raise InputError(f"{say}; copy them again, or leave them out with --skip_truncated")
        logging.warning("%s; left out", say)
    whole = [path for path in paths if lengths[path][1]]
    records = sum(len(lengths[path][0]) for path in whole)
    if not records:
        raise InputError(f"the data files {paths[0].parent}/{layout.pattern.partition('{')[0]}* have no sentences")
    return Files(layout, [str(path) for path in whole], records)


def read(files: Files, params: Params, shuffle_seed: int | None = None) -> tf.data.Dataset:
    """Returns the records of all files: strings, from which `parse` makes tokens.

    Their order is fixed. With `shuffle_seed` the files are in another order in each epoch, the same on all ranks.
    """
    paths = tf.data.Dataset.from_tensor_slices(files.paths)
    if shuffle_seed is not None:
        paths = paths.shuffle(len(files.paths), seed=shuffle_seed)
    records = paths.interleave(
        tf.data.TFRecordDataset, cycle_length=FILES_AT_A_TIME, num_parallel_calls=FILES_AT_A_TIME, deterministic=True
    )
    if files.layout.has_tokens:
        return records
    subtokenizer = Subtokenizer(params["vocab_file"])
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in ("en", "de")}

    def encode(*texts: bytes) -> bytes:
        return record(*(subtokenizer.encode(text.decode("utf-8"), add_eos=True) for text in texts))

    def with_tokens(text: tf.Tensor) -> tf.Tensor:
        parsed = tf.io.parse_single_example(text, features)
        return tf.ensure_shape(tf.numpy_function(encode, [parsed["en"], parsed["de"]], tf.string), [])

    return records.map(with_tokens, num_parallel_calls=tf.data.AUTOTUNE)


def record(source: list[int], target: list[int]) -> bytes:
    """Returns what a file of the Model Garden's layout has for a pair of sentences."""
    numbers = {"inputs": tf.train.Int64List(value=source), "targets": tf.train.Int64List(value=target)}
    features = {name: tf.train.Feature(int64_list=value) for name, value in numbers.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def parse(records: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns the tokens of some records, int64: of the sources, and of the targets."""
    features = {name: tf.io.RaggedFeature(tf.int64) for name in ("inputs", "targets")}
    parsed = tf.io.parse_example(records, features)
    return parsed["inputs"], parsed["targets"]


def check(files: Files, params: Params) -> None:
    """Raises InputError if the first sentences do not fit the vocabulary, or if all are too long."""
    sources, targets = parse(next(iter(read(files, params).batch(LOOKED_AT))))
    sentences = list(zip(sources.to_list(), targets.to_list(), strict=True))
    largest = max(max(max(x, default=0), max(y, default=0)) for x, y in sentences)
    if largest >= params["vocab_size"]:
        raise InputError(
            f"the vocabulary {params['vocab_file']} does not fit: it has {params['vocab_size']} sub-words, but "
            f"{files} have the number {largest}"
        )
    if any(not row or row[-1] != EOS for pair in sentences for row in pair):
        raise InputError(f"a sentence in {files} does not end with EOS: the data is of another vocabulary")
    if not any(max(len(x), len(y)) <= params["max_length"] for x, y in sentences):
        raise InputError(
            f"none of the first sentences in {files} has at most {params['max_length']} tokens: raise --max_length"
        )


def train_input_fn(params: Params, shuffle_seed: int = 42, num_ranks: int = 1, rank: int = 0) -> tf.data.Dataset:
    """Returns the batches of one rank: `((source, target), target, weight)`.

    All are of shape (micro_batch_size, max_length), tokens as int64; the weight is float32, and 0 for padding. A global
    batch has `batch_size // max_length` sentences, or the next lower multiple of the number of ranks. Each rank gets as
    many of them as the others, and as many batches: the sentences after the last whole global batch of an epoch are not
    used. Sentences longer than `max_length` are left out. Logs which layout the data has on rank 0. Raises InputError.
    """
    files = find(params, "train")
    assert files is not None
    check(files, params)
    if files.records < params["num_sentences"]:
        raise InputError(
            f"the data in {params['data_dir']} has {files.records} sentences, but a batch takes "
            f"{params['num_sentences']} (--batch_size // --max_length)"
        )
    batch_size, max_length = params["batch_size"], params["max_length"]
    all_fit = files.records <= SHUFFLED_SENTENCES
    dataset = _short_sentences(files, params, None if all_fit else shuffle_seed)
    dataset = dataset.shuffle(SHUFFLED_SENTENCES, seed=shuffle_seed)

    number_batch_sentences = batch_size // max_length
    micro_batch_size = number_batch_sentences // num_ranks
    if micro_batch_size < 1:
        raise InputError(
            f"a batch of {batch_size} tokens has {number_batch_sentences} sentences of {max_length} tokens, but there "
            f"are {num_ranks} ranks: raise --batch_size"
        )
    # Batch the sentences and select only the shard (subset) corresponding to the current rank.
    dataset = dataset.batch(micro_batch_size, drop_remainder=True)
    dataset = dataset.batch(num_ranks, drop_remainder=True).unbatch()  # a micro batch for each rank, or none
    dataset = dataset.shard(num_ranks, rank)
    if rank == 0:
        logging.info(
            "%s: %d sentence pairs to train on in %d files, in the layout of %s",
            params["data_dir"],
            files.records,
            len(files.paths),
            files.layout.name,
        )
    return _padded(dataset, max_length)


def eval_input_fn(params: Params) -> tf.data.Dataset | None:
    """Returns global batches of the split "dev", like those of `train_input_fn`, or None if there is none.

    Raises InputError.
    """
    files = find(params, "dev")
    if files is None:
        return None
    check(files, params)
    dataset = _short_sentences(files, params)
    return _padded(dataset.batch(params["num_sentences"]), params["max_length"])


def _short_sentences(files: Files, params: Params, shuffle_seed: int | None = None) -> tf.data.Dataset:
    """Returns the records of sentences that are not too long. `shuffle_seed` is that of `read`.

    Every rank reads all records, so many are looked at in one go. Few are kept: an epoch begins when the buffer that
    shuffles is full, for which it would read all files again. Kept ones stay in the order of the first epoch.
    """

    def fitting(some: tf.Tensor) -> tf.Tensor:
        source, target = parse(some)
        return tf.boolean_mask(some, tf.maximum(source.row_lengths(), target.row_lengths()) <= params["max_length"])

    batches = read(files, params, shuffle_seed).batch(FILTERED_AT_A_TIME)
    records = batches.map(fitting, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
    return records.cache() if sum(map(os.path.getsize, files.paths)) <= CACHED_BYTES else records


def _padded(batches: tf.data.Dataset, max_length: int) -> tf.data.Dataset:
    def padded(records: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor, tf.Tensor]:
        source, target = (sentences.to_tensor(shape=(None, max_length)) for sentences in parse(records))
        return (source, target), target, tf.cast(target != 0, tf.float32)

    return batches.map(padded).prefetch(tf.data.AUTOTUNE)
