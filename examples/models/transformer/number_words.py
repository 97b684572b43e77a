#!/usr/bin/env python
"""Writes a small parallel text: numbers in words, in English and another language. Uses the package num2words.

number_words.py --folder numbers --language es

train.en, train.es, dev.en, ... have one number a line. No number is in two of train, dev and test.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from num2words import num2words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--folder", required=True, type=Path, help="where the files are written")
    add("--language", default="es", help="as num2words names it (default: %(default)s)")
    add("--below", type=int, default=10_000, metavar="N", help="numbers are below N (default: %(default)s)")
    add("--train", type=int, default=9_000, metavar="N", help="numbers to train on (default: %(default)s)")
    add("--held_out", type=int, default=200, metavar="N", help="numbers of dev, and of test (default: %(default)s)")
    add("--seed", type=int, default=42)
    args = parser.parse_args()
    total = args.train + 2 * args.held_out
    if total > args.below:
        parser.error(f"--train and twice --held_out are {total} numbers, but only {args.below} are below --below")

    numbers = random.Random(args.seed).sample(range(args.below), total)
    ends = {"train": args.train, "dev": args.train + args.held_out, "test": total}
    args.folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for split, end in ends.items():
        for language in ("en", args.language):
            lines = [num2words(number, lang=language) for number in numbers[start:end]]
            (args.folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        start = end


if __name__ == "__main__":
    main()
