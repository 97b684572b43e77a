"""Translating files, and judging the translations."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`

import numpy as np
from bleu import bleu_scores
from common.errors import InputError
from model_params import Params
from tokenizer import Subtokenizer


def read_lines(path: str | Path) -> list[str]:
    """Returns the lines of a text file without white space at their ends. Raises InputError."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").rstrip("\n").split("\n")]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8") from None
    if not any(lines):
        raise InputError(f"{path} is empty")
    return lines


def read_pair(source: str | Path, reference: str | Path) -> tuple[list[str], list[str]]:
    """Returns the lines of two files that are translations of each other, line by line. Raises InputError."""
    lines = read_lines(source), read_lines(reference)
    if len(lines[0]) != len(lines[1]):
        raise InputError(f"{source} has {len(lines[0])} lines, but {reference} has {len(lines[1])}")
    return lines


def translate(model: Any, params: Params, subtokenizer: Subtokenizer, lines: list[str]) -> list[str]:
    """Translates lines by a model that `create_model(..., is_train=False)` has made."""
    encoded = [subtokenizer.encode(line, add_eos=True) for line in lines]
    # One length for all, so that one graph serves all batches.
    inputs = np.zeros((len(encoded), max(map(len, encoded))), "int64")
    for row, numbers in zip(inputs, encoded, strict=True):
        row[: len(numbers)] = numbers
    outputs, _ = model.predict(inputs, batch_size=params["decode_batch_size"], verbose=0)
    return [subtokenizer.decode(row) for row in outputs.tolist()]


def evaluate_and_log_bleu(
    model: Any, params: Params, bleu_source: str, bleu_ref: str, vocab_file: str
) -> tuple[float, float]:
    """Translates the file `bleu_source` and compares with `bleu_ref`. Returns and logs BLEU, uncased and cased."""
    source, references = read_pair(bleu_source, bleu_ref)
    translations = translate(model, params, Subtokenizer(vocab_file), source)
    logging.info("Translation of %r: %r", source[0], translations[0])
    uncased_score, cased_score = bleu_scores(references, translations)
    logging.info("Bleu score (uncased): %.2f", uncased_score)
    logging.info("Bleu score (cased): %.2f", cased_score)
    return uncased_score, cased_score
