"""The order in which the Transformer example reads its data, what each rank gets of it, and what it says meanwhile."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_modules import modules_of

from .conftest import EXAMPLES

FOLDER = EXAMPLES / "models/transformer"
FILES, ROWS = 10, 41  # ROWS is no multiple of a global batch
WORDS = 48


@pytest.fixture(scope="module")
def part() -> Iterator[Callable[[str], ModuleType]]:
    """`part("tokenizer")`: a module of the example, whose folder is in sys.path meanwhile."""
    with modules_of(FOLDER, EXAMPLES) as found:
        yield found


@pytest.fixture
def params(part: Callable[[str], ModuleType], tmp_path: Path) -> dict[str, Any]:
    """Parameters of a small run on ROWS sentences in FILES files. Each sentence is its number and EOS."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    pipeline = part("data_pipeline")
    for shard in range(FILES):
        with tf.io.TFRecordWriter(str(tmp_path / f"wmt32k-train-{shard + 1:05}-of-{FILES:05}")) as file:
            for row in range(shard, ROWS, FILES):
                file.write(pipeline.record([2 + row, 1], [2 + row, 1]))
    pieces = ["<pad>", "<EOS>", *(chr(ord("0") + number) for number in range(WORDS)), *"\\_u;"]
    part("tokenizer").write_vocabulary(tmp_path / "vocab.ende.64", pieces)
    return {
        "data_dir": str(tmp_path),
        "vocab_file": str(tmp_path / "vocab.ende.64"),
        "vocab_size": len(pieces),
        "batch_size": 24,
        "max_length": 4,
        "num_sentences": 6,
    }


def sentences(dataset: Any) -> list[list[int]]:
    """The numbers of the sentences in each batch."""
    return [(target[:, 0] - 2).tolist() for _, target, _ in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(("ranks", "micro", "steps"), [(1, 6, 6), (2, 3, 6), (3, 2, 6), (4, 1, 10)])
def test_every_rank_gets_as_many_batches(
    part: Callable[[str], ModuleType], params: dict[str, Any], ranks: int, micro: int, steps: int
) -> None:
    """With four ranks, a global batch of 6 sentences has 4."""
    shares = [sentences(part("data_pipeline").train_input_fn(params, 42, ranks, rank)) for rank in range(ranks)]
    assert [[len(batch) for batch in share] for share in shares] == [[micro] * steps] * ranks
    seen = Counter(row for share in shares for batch in share for row in batch)
    assert set(seen.values()) == {1}
    whole = sentences(part("data_pipeline").train_input_fn(params))
    if ranks * micro == 6:
        assert [np.concatenate(batches).tolist() for batches in zip(*shares, strict=True)] == whole


def test_files_are_read_in_another_order_in_each_epoch(
    part: Callable[[str], ModuleType], params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = part("data_pipeline")
    monkeypatch.setattr(pipeline, "CACHED_BYTES", 0)
    monkeypatch.setattr(pipeline, "SHUFFLED_SENTENCES", 1)  # so that only the order of the files changes

    def epochs(rank: int, ranks: int) -> list[list[list[int]]]:
        dataset = pipeline.train_input_fn(params, 42, ranks, rank)
        return [sentences(dataset) for _ in range(2)]

    first, second = epochs(0, 1)
    assert first != second
    whole = [np.concatenate(each).tolist() for each in zip(epochs(0, 2)[1], epochs(1, 2)[1], strict=True)]
    assert whole == second
    fixed = pipeline.read(pipeline.find(params, "train"), params)  # as that of the dev sentences
    assert list(fixed.as_numpy_iterator()) == list(fixed.as_numpy_iterator())


def test_texts_are_mixed(part: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {f"{name}.{language}": name * 50 for name in "ab" for language in ("en", "de")}
    for name, letters in texts.items():
        lines = (f"{letter}{number}" for number, letter in enumerate(letters))
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files = {language: [str(tmp_path / f"{name}.{language}") for name in "ab"] for language in ("en", "de")}
    command = ["data_download.py", "--data_dir", str(tmp_path / "data"), "--vocab_size", "64", "--train_shards", "2"]
    command += ["--train_source", *files["en"], "--train_target", *files["de"]]
    monkeypatch.setattr(sys, "argv", command)
    download, pipeline = part("data_download"), part("data_pipeline")
    download.main(download.parse_args())

    subtokenizer = part("tokenizer").Subtokenizer(tmp_path / "data/vocab.ende.64")
    found = pipeline.find({"data_dir": str(tmp_path / "data")}, "train")
    for path in found.paths:
        one = pipeline.Files(found.layout, [path], 50)
        sources, targets = pipeline.parse(next(iter(pipeline.read(one, {}).batch(100))))
        lines = [subtokenizer.decode(row) for row in sources.to_list()]
        assert lines == [subtokenizer.decode(row) for row in targets.to_list()]
        assert len(lines) == 50 and 5 < sum(line[0] == "a" for line in lines[:25]) < 20, lines


@pytest.fixture
def task(part: Callable[[str], ModuleType], params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A small model, whose `fit` only notes in `task.trained` what it got."""
    script, models = part("transformer_tnt"), part("model_params")
    monkeypatch.setitem(models.PARAM_SETS, "tiny", {**models.BASE, "num_hidden_layers": 1, "hidden_size": 16})
    options = [f"--{name}={params[name]}" for name in ("data_dir", "batch_size", "max_length")]
    made = script.TransformerTntTask(script.parse_args([*options, "--param_set=tiny", "--train_epochs=3"]))
    made.trained = []

    def fit(dataset: Any, *, initial_epoch: int, epochs: int, **_: Any) -> Any:
        made.trained.append((initial_epoch, epochs, sentences(dataset)))
        return argparse.Namespace(history={"loss": [0.0] * (epochs - initial_epoch)})

    made.train_model = argparse.Namespace(fit=fit, compile=lambda **_: None)
    return made


def test_a_resumed_training_reads_in_another_order(task: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    task.train()
    assert caplog.text.count("41 sentence pairs to train on in 10 files, in the layout of the Model Garden") == 1
    task.load_checkpoint = lambda: 2
    task.train()
    (start, _, first), *_, (resumed, end, then) = task.trained
    assert (start, resumed, end) == (0, 2, 3)
    assert first != then


@pytest.mark.parametrize("epochs", [3, 5])
def test_a_finished_training_says_so(task: Any, caplog: pytest.LogCaptureFixture, epochs: int) -> None:
    caplog.set_level(logging.INFO)
    task.load_checkpoint = lambda: epochs
    assert task.train()["loss"] == [] and not task.trained
    assert caplog.text.count("All 3 epochs are done: the newest checkpoint in ") == 1


@pytest.mark.parametrize(("ranks", "tokens"), [(1, 24), (4, 16)])
def test_speed_counts_the_tokens_of_a_step(
    part: Callable[[str], ModuleType], task: Any, monkeypatch: pytest.MonkeyPatch, ranks: int, tokens: int
) -> None:
    monkeypatch.setattr(part("transformer_tnt").tnt, "get_size", lambda: ranks)
    task.flags_obj.enable_time_history = True
    assert task.create_callbacks()[0].batch_size == tokens


def test_the_parameters_are_those_of_the_model_garden_for_several_gpus(part: Callable[[str], ModuleType]) -> None:
    names = ("layer_postprocess_dropout", "attention_dropout", "relu_dropout", "learning_rate_warmup_steps")
    sets = part("model_params").PARAM_SETS
    assert {name: tuple(each[word] for word in names) for name, each in sets.items()} == {
        "tiny": (0.1, 0.1, 0.1, 16_000),
        "base": (0.1, 0.1, 0.1, 8_000),
        "big": (0.3, 0.1, 0.1, 8_000),
    }
