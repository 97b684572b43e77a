"""The parts of the Transformer example, without a job: sub-words, data, beam search, loss, BLEU, and bad input."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_modules import modules_of
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).resolve().parents[3] / "examples/models/transformer"
LINES = ["the cat sat on the mat", "a dog, a cat; 12 mice", "under_score and \\ back", "the mat"] * 8
ROWS = 40  # sentences of the made data


@pytest.fixture(scope="module")
def part() -> Iterator[Callable[[str], ModuleType]]:
    """`part("tokenizer")`: a module of the example, whose folder is in sys.path meanwhile."""
    with modules_of(FOLDER, FOLDER.parents[1]) as found:
        yield found


@pytest.fixture(scope="module")
def vocabulary(part: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A Subtokenizer that has learned from LINES, and its file."""
    tokenizer, path = part("tokenizer"), tmp_path_factory.mktemp("vocabulary") / "vocab.ende.96"
    tokenizer.write_vocabulary(path, tokenizer.learn(LINES, 96))
    return tokenizer.Subtokenizer(path), path


def write(path: Path, records: list[dict[str, Any]]) -> None:
    """Writes a TFRecord file: texts as bytes, tokens as lists of integers."""
    import tensorflow as tf

    def feature(value: Any) -> Any:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value))

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for record in records:
            features = {name: feature(value) for name, value in record.items()}
            file.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def sentence(row: int, length: int = 4) -> list[int]:
    return [2 + (row * 7 + place) % 40 for place in range(length)] + [1]


@pytest.fixture
def params(vocabulary: Any, tmp_path: Path) -> dict[str, Any]:
    """Parameters of a small run on ROWS sentences in three files."""
    for shard in range(3):
        rows = [{"inputs": sentence(row), "targets": sentence(row + 1)} for row in range(shard, ROWS, 3)]
        write(tmp_path / f"wmt32k-train-{shard + 1:05}-of-00003", rows)
    subtokenizer, path = vocabulary
    return {
        "data_dir": str(tmp_path),
        "vocab_file": str(path),
        "vocab_size": subtokenizer.vocab_size,
        "batch_size": 64,
        "max_length": 8,
        "num_sentences": 8,
    }


def options(params: dict[str, Any], *more: str) -> list[str]:
    return [*(f"--{name}={params[name]}" for name in ("data_dir", "vocab_file", "batch_size", "max_length")), *more]


# Sub-words


@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_any_line_survives_encoding_and_decoding(vocabulary: Any, text: str) -> None:
    subtokenizer, _ = vocabulary
    numbers = subtokenizer.encode(text, add_eos=True)
    assert numbers[-1] == 1 and 0 not in numbers and 1 not in numbers[:-1]
    assert subtokenizer.decode([*numbers, 0, 5]) == text.strip()


def test_frequent_words_are_one_sub_word_and_the_longest_ones_win(vocabulary: Any) -> None:
    subtokenizer, _ = vocabulary
    pieces = [subtokenizer.subtokens[number] for number in subtokenizer.encode("the cat")]
    assert pieces == ["the_", "cat_"]
    assert subtokenizer.subtokens[:2] == ["<pad>", "<EOS>"]
    assert len(set(subtokenizer.subtokens)) == len(subtokenizer.subtokens) <= 96


def test_a_vocabulary_of_the_model_garden_is_read(part: Callable[[str], ModuleType], tmp_path: Path) -> None:
    pieces = ["<pad>", "<EOS>", "Wo", "rt", "Wort_", "'", ", _", *"Wort, \\_u;0123456789"]
    quoted = [f'"{piece}"' if piece == "'" else f"'{piece}'" for piece in pieces]
    (tmp_path / "vocab").write_text("\n".join(quoted) + "\n")
    subtokenizer = part("tokenizer").Subtokenizer(tmp_path / "vocab")
    assert [subtokenizer.subtokens[number] for number in subtokenizer.encode("Wort, Wo")] == ["Wort_", ", _", "Wo", "_"]
    assert subtokenizer.decode(subtokenizer.encode("Wort, 'x")) == "Wort, 'x"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot read the vocabulary .*: No such file"),
        (b"", "is not a vocabulary of sub-words"),
        (b"the\ncat\nsat\n", "is not a vocabulary of sub-words"),
        (b"\xff\xfe\x00", "is not text in UTF-8"),
        (b"'<pad>'\n'<EOS>'\n'a_'\n", "lacks the characters"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(
    part: Callable[[str], ModuleType], tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "vocab").write_bytes(content)
    with pytest.raises(part("common.errors").InputError, match=sentence):
        part("tokenizer").Subtokenizer(tmp_path / "vocab")


# Data


def test_the_ranks_together_read_the_batches_of_one_process(
    part: Callable[[str], ModuleType], params: dict[str, Any]
) -> None:
    read = part("data_pipeline").train_input_fn
    whole = list(read(params, 42, 1, 0))
    assert len(whole) == ROWS // 8
    (source, target), label, weight = whole[0]
    assert source.shape == target.shape == (8, 8) and np.array_equal(target, label)
    assert np.array_equal(weight, np.array(target) != 0) and weight.dtype == "float32"
    assert np.array_equal(source[:, 5:], np.zeros((8, 3)))

    for ranks in (2, 4):
        shares = [list(read(params, 42, ranks, rank)) for rank in range(ranks)]
        for step, batch in enumerate(whole):
            rows = np.concatenate([share[step][0][0] for share in shares])
            assert np.array_equal(rows, batch[0][0])
    seen = {tuple(row) for batch in whole for row in np.array(batch[0][0])}
    assert seen <= {(*sentence(row), 0, 0, 0) for row in range(ROWS)}
    assert not np.array_equal(next(iter(read(params, 7, 1, 0)))[0][0], source)


def test_long_sentences_are_left_out(part: Callable[[str], ModuleType], params: dict[str, Any]) -> None:
    write(
        Path(params["data_dir"]) / "wmt32k-train-00003-of-00003", [{"inputs": sentence(1, 8), "targets": sentence(1)}]
    )
    batches = list(part("data_pipeline").train_input_fn(params))
    assert sum(len(batch[1]) for batch in batches) == 24  # of 27 in the first two files, in whole batches


def test_text_that_tensorflow_datasets_has_prepared_is_read(
    part: Callable[[str], ModuleType], params: dict[str, Any], vocabulary: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "prepared"
    rows = [{"en": english.encode(), "de": german.encode()} for english, german in itertools.pairwise(LINES)]
    write(folder / "wmt14_translate/de-en/1.0.0/wmt14_translate-train.tfrecord-00000-of-00001", rows)
    write(folder / "wmt14_translate/de-en/1.0.0/wmt14_translate-validation.tfrecord-00000-of-00001", rows[:3])
    write(folder / "wmt14_translate/fr-en/1.0.0/wmt14_translate-train.tfrecord-00000-of-00001", rows[:1])
    params |= {"data_dir": str(folder), "max_length": 40, "batch_size": 320}
    subtokenizer, _ = vocabulary
    pipeline = part("data_pipeline")
    pairs = {
        (subtokenizer.decode(source), subtokenizer.decode(target))
        for (sources, targets), *_ in pipeline.train_input_fn(params).as_numpy_iterator()
        for source, target in zip(sources, targets, strict=True)
    }
    assert pairs and pairs <= set(itertools.pairwise(LINES))
    ((sources, _), *_), *rest = pipeline.eval_input_fn(params)
    assert sources.shape == (3, 40) and not rest


def test_data_that_cannot_be_used_is_named(part: Callable[[str], ModuleType], params: dict[str, Any]) -> None:
    def says(text: str, **changed: Any) -> None:
        with pytest.raises(part("common.errors").InputError, match=text):
            part("data_pipeline").train_input_fn({**params, **changed}, 42, 2, 0)

    folder = Path(params["data_dir"])
    says("the data folder /nowhere does not exist", data_dir="/nowhere")
    says("has no files wmt32k-train-.* or wmt14_translate-train", data_dir=str(FOLDER))
    says(r"has 20 sub-words, but .*wmt32k-train-\* have the number", vocab_size=20)
    says("has 40 sentences, but a batch takes 100", num_sentences=100)
    says("raise --max_length", max_length=3)
    says("1 sentences of 8 tokens, but there are 2 ranks", batch_size=8)

    whole = folder / "wmt32k-train-00002-of-00003"
    whole.write_bytes(whole.read_bytes()[:-5])
    says("1 of 3 data files in .* are truncated: wmt32k-train-00002-of-00003; .*--skip_truncated")
    kept = list(part("data_pipeline").train_input_fn({**params, "skip_truncated": True}))
    assert sum(len(batch[1]) for batch in kept) == 24  # of 27 in the two other files
    for path in folder.glob("wmt32k-*"):
        path.write_bytes(b"")
    says("have no sentences")
    write(folder / "wmt32k-train-00001-of-00003", [{"inputs": [5, 6], "targets": [7, 1]}] * 9)
    says("does not end with EOS")


def test_few_sentences_are_read_once_and_shuffled_as_if_they_were_not_kept(
    part: Callable[[str], ModuleType], params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = part("data_pipeline")

    def epochs() -> list[Any]:
        dataset = pipeline.train_input_fn(params)
        return [np.concatenate([label for _, label, _ in dataset.as_numpy_iterator()]) for _ in range(2)]

    kept = epochs()
    monkeypatch.setattr(pipeline, "CACHED_BYTES", 0)
    assert np.array_equal(epochs(), kept)
    assert not np.array_equal(*kept)
    monkeypatch.undo()
    dataset = pipeline.train_input_fn(params)
    batches = len(list(dataset))
    for path in Path(params["data_dir"]).glob("wmt32k-train-*"):
        path.unlink()
    assert len(list(dataset)) == batches


def test_dev_sentences_are_checked_before_training(part: Callable[[str], ModuleType], params: dict[str, Any]) -> None:
    eval_input_fn, path = part("data_pipeline").eval_input_fn, Path(params["data_dir"]) / "wmt32k-dev-00001-of-00001"
    assert eval_input_fn(params) is None
    write(path, [{"inputs": sentence(1), "targets": sentence(2)}] * 3)  # less than a batch
    assert len(list(eval_input_fn(params))) == 1
    for tokens, text in (([900, 1], "have the number 900"), ([5, 6], "EOS"), (sentence(1, 9), "raise --max_length")):
        write(path, [{"inputs": tokens, "targets": tokens}])
        with pytest.raises(part("common.errors").InputError, match=rf"wmt32k-dev-\* .*{text}"):
            eval_input_fn(params)


def test_text_becomes_data(
    part: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "a.en").write_text("\n".join(LINES) + "\n")
    (tmp_path / "a.de").write_text("\n".join(reversed(LINES)) + "\n")
    command = ["data_download.py", "--data_dir", str(tmp_path / "data"), "--vocab_size", "64", "--train_shards", "2"]
    command += ["--train_source", str(tmp_path / "a.en"), "--train_target", str(tmp_path / "a.de")]
    monkeypatch.setattr(sys, "argv", command)
    download = part("data_download")
    download.main(download.parse_args())
    assert f"{len(LINES)} sentence pairs to train on in 2 files" in capsys.readouterr().out
    pipeline, data = part("data_pipeline"), {"data_dir": str(tmp_path / "data")}
    (records,) = pipeline.read(pipeline.find(data, "train"), data).batch(1000)
    pairs = zip(*(sentences.to_list() for sentences in pipeline.parse(records)), strict=True)
    subtokenizer = part("tokenizer").Subtokenizer(tmp_path / "data/vocab.ende.64")
    assert sorted(tuple(map(subtokenizer.decode, pair)) for pair in pairs) == sorted(
        zip(LINES, LINES[::-1], strict=True)
    )
    with pytest.raises(part("common.errors").InputError, match="has data already"):
        download.main(download.parse_args())
    (tmp_path / "a.de").write_text("one line\n")
    with pytest.raises(part("common.errors").InputError, match=r"has 32 lines, but .* has 1"):
        download.main(download.parse_args())


# The model


@pytest.mark.parametrize("traced", [False, True])
def test_beam_search_finds_what_trying_all_sequences_finds(part: Callable[[str], ModuleType], traced: bool) -> None:
    import tensorflow as tf

    beam_search = part("beam_search")
    words, length, sentences, beams, alpha = 4, 4, 3, 30, 0.6
    # Logits by sentence, position, the token before the last one, which is in the cache, and the last one.
    logits = np.random.default_rng(0).normal(size=(sentences, length, words, words, words), scale=2).astype("float32")
    rows = tf.repeat(tf.range(sentences), beams)

    def step(last: Any, index: Any, cache: list[Any]) -> Any:
        where = tf.stack([rows, tf.fill(tf.shape(rows), index), cache[0][:, 0], last], axis=1)
        return tf.gather_nd(tf.constant(logits), where), [last[:, None]]

    def search() -> Any:
        return beam_search.search(step, [tf.zeros((sentences * beams, 1), tf.int32)], sentences, length, beams, alpha)

    def score(row: int, sequence: tuple[int, ...]) -> float:
        total = 0.0
        for index, token in enumerate(sequence):
            before, last = [0, 0, *sequence][index : index + 2]
            values = logits[row, index, before, last]
            total += values[token] - np.log(np.exp(values).sum())
        return total / ((5 + len(sequence)) / 6) ** alpha

    ids, scores = (tf.function(search) if traced else search)()
    endings = [(*middle, 1) for size in range(length) for middle in itertools.product([0, 2, 3], repeat=size)]
    for row in range(sentences):
        best = sorted(endings, key=lambda sequence: -score(row, sequence))[:5]
        assert [tuple(found[: len(each)]) for found, each in zip(np.array(ids)[row], best, strict=False)] == best
        np.testing.assert_allclose(scores[row][:5], [score(row, each) for each in best], rtol=1e-5)


@pytest.fixture(scope="module")
def small(part: Callable[[str], ModuleType]) -> Any:
    """A model of random weights: parameters, training model, inference model."""
    import keras

    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 16, "num_heads": 2, "filter_size": 32, "num_hidden_layers": 2, "vocab_size": 12}
    sizes |= {"beam_size": 3, "extra_decode_length": 2}
    params = {**part("model_params").get_model_params("tiny"), **sizes}
    transformer = part("transformer").Transformer(params, name="transformer_v2")
    create_model = part("transformer_tnt").create_model
    return params, create_model(transformer, params, is_train=True), create_model(transformer, params, is_train=False)


def test_translating_uses_the_probabilities_of_training(small: Any) -> None:
    params, train, predict = small
    assert [id(each) for each in train.trainable_variables] == [id(each) for each in predict.trainable_variables]
    source = np.array([[5, 3, 9, 1, 0, 0], [2, 2, 1, 0, 0, 0], [4, 7, 8, 9, 10, 1]])
    outputs, scores = predict.predict(source, batch_size=2, verbose=0)
    assert outputs.shape == (3, 8) and scores.shape == (3,)
    logits = np.array(train([source, outputs]), "float64")
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, output in enumerate(outputs):
        length = [*output, 1].index(1) + 1 if 1 in output else 8
        total = sum(log_probabilities[row, place, output[place]] for place in range(length))
        assert total / ((5 + length) / 6) ** params["alpha"] == pytest.approx(scores[row], rel=1e-4)
        assert not output[length:].any()


def test_no_position_sees_padding_or_later_tokens(small: Any) -> None:
    _, train, _ = small
    source, target = np.array([[5, 3, 1]]), np.array([[4, 6, 7, 1]])
    logits = np.array(train([source, target]))
    padded = np.array(train([np.array([[5, 3, 1, 0, 0]]), np.array([[4, 6, 9, 11]])]))
    np.testing.assert_allclose(padded[:, :3], logits[:, :3], atol=1e-5)
    assert np.abs(padded[:, 3] - logits[:, 3]).max() > 1e-3


def test_the_loss_is_that_of_smoothed_labels(part: Callable[[str], ModuleType]) -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(2, 3, 5)).astype("float32"), random.integers(5, size=(2, 3))
    weights = np.array([[1, 1, 0], [1, 0, 0]], "float32")
    wanted = np.where(np.eye(5)[labels] == 1, 0.8, 0.05)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    of_token = (wanted * (np.log(wanted) - log_probabilities)).sum(-1)
    loss = part("loss").SmoothedCrossentropy(0.2)
    assert float(loss(labels, logits, weights)) == pytest.approx((of_token * weights).sum() / 3, rel=1e-5)
    assert float(loss(labels, np.log(wanted).astype("float32"), weights)) == pytest.approx(0, abs=1e-5)
    assert float(part("loss").SmoothedCrossentropy(0.0)(labels, logits)) == pytest.approx(
        -np.take_along_axis(log_probabilities, labels[..., None], -1).mean(), rel=1e-5
    )


def test_the_learning_rate_rises_and_then_falls_with_the_root(part: Callable[[str], ModuleType]) -> None:
    schedule = part("schedule").LearningRateSchedule(2.0, 512, 16_000)
    peak = 2 / math.sqrt(512 * 16_000)
    rates = [float(schedule(step)) for step in (0, 4_000, 16_000, 64_000)]
    assert rates == pytest.approx([0, peak / 4, peak, peak / 2], rel=1e-5)


def test_bleu_is_that_of_the_definition(part: Callable[[str], ModuleType]) -> None:
    scores = part("bleu").bleu_scores
    assert scores(["a b c d e"], ["a b c d e"]) == pytest.approx((100, 100))
    assert scores(["a b c d e"], ["a b c d"]) == pytest.approx((100 * math.exp(-1 / 4),) * 2)  # too short by a fifth
    # Of 6, 5, 4 and 3 n-grams one is wrong in each case that counts the upper-case word at the end.
    uncased, cased = scores(["a b c d e f"], ["a b c d e F"])
    assert uncased == pytest.approx(100)
    assert cased == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)


# The script


def test_the_sizes_are_those_of_the_paper(part: Callable[[str], ModuleType]) -> None:
    sets = part("model_params").PARAM_SETS
    assert {name: (each["hidden_size"], each["num_heads"], each["filter_size"]) for name, each in sets.items()} == {
        "tiny": (32, 4, 256),
        "base": (512, 8, 2048),
        "big": (1024, 16, 4096),
    }
    assert {each["num_hidden_layers"] for each in sets.values()} == {6}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("--train_epochs=0", "--train_epochs is 0, but must be at least 1"),
        ("--dropout=1", "--dropout is 1, but must be from 0 to below 1"),
        ("--bleu_ref=x", "--bleu_source and --bleu_ref belong together"),
        ("--param_set=huge", "choose from"),
        ("--enable_tensorboard", "--enable_tensorboard needs --model_dir"),
    ],
)
def test_wrong_options_are_refused(
    part: Callable[[str], ModuleType], params: dict[str, Any], capsys: Any, wrong: str, sentence: str
) -> None:
    with pytest.raises(SystemExit):
        part("transformer_tnt").parse_args(options(params, wrong))
    assert sentence in capsys.readouterr().err


@pytest.mark.extended
def test_a_checkpoint_of_another_model_is_refused(
    part: Callable[[str], ModuleType], params: dict[str, Any], tmp_path: Path
) -> None:
    script = part("transformer_tnt")
    models = part("model_params")

    def task(hidden_size: int) -> Any:
        sizes = {**models.BASE, "num_hidden_layers": 1, "hidden_size": hidden_size, "filter_size": 8}
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(models.PARAM_SETS, "tiny", sizes)
            made = script.TransformerTntTask(
                script.parse_args(options(params, "--param_set=tiny", f"--model_dir={tmp_path / 'model'}"))
            )
        made.compile()
        return made

    first = task(16)
    assert first.load_checkpoint() == 0
    (tmp_path / "model").mkdir()
    first.train_model.optimizer.build(first.train_model.trainable_variables)
    first.train_model.optimizer.iterations.assign(77)
    first.train_model.save_weights(tmp_path / "model/cp-0003.weights.h5")
    again = task(16)
    assert again.load_checkpoint() == 3
    assert int(again.train_model.optimizer.iterations) == 77
    for one, other in zip(first.train_model.weights, again.train_model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(part("common.errors").InputError, match=r"cp-0003.weights.h5 is damaged or of another model"):
        task(32).load_checkpoint()
    (tmp_path / "model/cp-0004.weights.h5").write_bytes(b"no HDF5")
    with pytest.raises(part("common.errors").InputError, match=r"cp-0004.weights.h5 is damaged or of another model"):
        task(16).load_checkpoint()


def test_the_rest_of_the_epochs_is_trained(
    part: Callable[[str], ModuleType], params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    script, models = part("transformer_tnt"), part("model_params")
    monkeypatch.setitem(models.PARAM_SETS, "tiny", {**models.BASE, "num_hidden_layers": 1, "hidden_size": 16})
    epochs = ("--param_set=tiny", "--train_epochs=5", "--epochs_between_evals=2")
    task = script.TransformerTntTask(script.parse_args(options(params, *epochs)))
    trained = []

    def fit(*_: Any, initial_epoch: int, epochs: int, **__: Any) -> Any:
        trained.append((initial_epoch, epochs))
        return argparse.Namespace(history={"loss": [0.0] * (epochs - initial_epoch)})

    task.train_model = argparse.Namespace(fit=fit, compile=lambda **_: None)
    assert task.train()["loss"] == [0.0] * 5
    assert trained == [(0, 2), (2, 4), (4, 5)]


def test_texts_for_bleu_are_checked_before_training(
    part: Callable[[str], ModuleType], params: dict[str, Any], tmp_path: Path
) -> None:
    script = part("transformer_tnt")
    (tmp_path / "two").write_text("a\nb\n")
    (tmp_path / "one").write_text("a\n")
    texts = (f"--bleu_source={tmp_path / 'two'}", f"--bleu_ref={tmp_path / 'one'}")
    args: argparse.Namespace = script.parse_args(options(params, *texts))
    with pytest.raises(part("common.errors").InputError, match=r"two has 2 lines, but .*one has 1"):
        script.TransformerTntTask(args)
