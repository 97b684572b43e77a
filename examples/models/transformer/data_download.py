#!/usr/bin/env python
"""Makes the training data of the Transformer from text files: a vocabulary of sub-words, and TFRecords of tokens.

data_download.py --data_dir wmt --train_source train.en --train_target train.de --dev_source dev.en --dev_target dev.de

Each file has one sentence a line, and the lines of source and target belong together. The result has the layout of the
TensorFlow Model Garden: vocab.ende.32768, wmt32k-train-00001-of-00100, ..., wmt32k-dev-00001-of-00001. The sentences to
train on are shuffled, the same way in every run.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`

import tensorflow as tf
import tokenizer
from common.errors import InputError
from data_pipeline import record
from transformer_main import read_pair

SHUFFLE_SEED = 42

Pairs = list[tuple[str, str]]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data_dir", required=True, type=Path, metavar="DIR", help="where the data is written")
    add("--train_source", required=True, nargs="+", metavar="FILE", help="sentences to translate")
    add("--train_target", required=True, nargs="+", metavar="FILE", help="their translations")
    add("--dev_source", nargs="+", default=[], metavar="FILE")
    add("--dev_target", nargs="+", default=[], metavar="FILE")
    add("--vocab_size", type=int, default=32768, metavar="N", help="the most sub-words (default: %(default)s)")
    add("--train_shards", type=int, default=100, metavar="N", help="files of training data (default: %(default)s)")
    args = parser.parse_args()
    for split in ("train", "dev"):
        sources, targets = getattr(args, f"{split}_source"), getattr(args, f"{split}_target")
        if len(sources) != len(targets):
            parser.error(f"--{split}_source names {len(sources)} files, but --{split}_target {len(targets)}")
    if args.train_shards < 1:
        parser.error(f"--train_shards is {args.train_shards}, but the data needs a file")
    return args


def read_pairs(sources: list[str], targets: list[str]) -> Pairs:
    """Returns the lines of all files in pairs, without those where one side is empty. Raises InputError."""
    files = [read_pair(source, target) for source, target in zip(sources, targets, strict=True)]
    return [pair for lines in files for pair in zip(*lines, strict=True) if all(pair)]


def write_shards(folder: Path, split: str, shards: int, pairs: Pairs, vocabulary: tokenizer.Subtokenizer) -> None:
    """Writes the pairs in turn to `shards` files."""
    names = [f"wmt32k-{split}-{number:05}-of-{shards:05}" for number in range(1, shards + 1)]
    for number, name in enumerate(names):
        # A file appears when it is whole.
        with tf.io.TFRecordWriter(str(folder / f".{name}")) as file:
            for pair in pairs[number::shards]:
                file.write(record(*(vocabulary.encode(text, add_eos=True) for text in pair)))
        (folder / f".{name}").rename(folder / name)


def main(args: argparse.Namespace) -> None:
    train = read_pairs(args.train_source, args.train_target)
    dev = read_pairs(args.dev_source, args.dev_target)
    args.data_dir.mkdir(parents=True, exist_ok=True)
    if old := sorted(args.data_dir.glob("wmt32k-*")):
        raise InputError(f"{args.data_dir} has data already, such as {old[0].name}: remove it, or name another folder")
    vocab_file = args.data_dir / f"vocab.ende.{args.vocab_size}"
    subtokens = tokenizer.learn((text for pair in train for text in pair), args.vocab_size)
    tokenizer.write_vocabulary(vocab_file, subtokens)
    print(f"{vocab_file}: {len(subtokens)} sub-words")

    vocabulary = tokenizer.Subtokenizer(vocab_file)
    random.Random(SHUFFLE_SEED).shuffle(train)  # or training would go through one text after the other
    write_shards(args.data_dir, "train", args.train_shards, train, vocabulary)
    if dev:
        write_shards(args.data_dir, "dev", 1, dev, vocabulary)
    print(f"{args.data_dir}: {len(train)} sentence pairs to train on in {args.train_shards} files, {len(dev)} to check")


if __name__ == "__main__":
    try:
        main(parse_args())
    except InputError as error:
        raise SystemExit(f"data_download.py: {error}") from None
