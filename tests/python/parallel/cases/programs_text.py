"""Programs on words and characters as people write them, small: translation, GPT, decoding loops, text as it trains."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import Wrap, case, trained

WORDS, WIDTH, LENGTH = 13, 6, 5
START, END = 1, 2
VERSES = ["the cat sat on the mat", "a dog ran", "then the dog sat", "a cat ran to the dog", "on and on a dog ran"]


class Placed(keras.layers.Layer):
    """Each token's vector plus that of its place, which is looked up by arange and so is the same in every row."""

    def __init__(self, length: int, masked: bool = False) -> None:
        super().__init__()
        self.token = keras.layers.Embedding(WORDS, WIDTH, mask_zero=masked)
        self.place = keras.layers.Embedding(length, WIDTH)

    def call(self, tokens: Any) -> Any:
        return self.token(tokens) + self.place(keras.ops.arange(keras.ops.shape(tokens)[-1]))

    def compute_mask(self, tokens: Any, previous: Any = None) -> Any:
        return self.token.compute_mask(tokens)


def attended(query: Any, value: Any, **options: Any) -> Any:
    """Without biases: that of the keys has no gradient but rounding's."""
    heads = keras.layers.MultiHeadAttention(2, WIDTH // 2, use_bias=False)
    return keras.layers.LayerNormalization()(query + heads(query, value, **options))


def fed_forward(x: Any) -> Any:
    hidden = keras.layers.Dense(2 * WIDTH, activation="gelu")(x)
    return keras.layers.LayerNormalization()(x + keras.layers.Dense(WIDTH)(hidden))


def phrases(samples: int = 27) -> tuple[Any, Any]:
    """Sources of several lengths, filled up with zeros; a target is its source backwards between start and end."""
    random = np.random.default_rng(samples)
    source, target = np.zeros((samples, LENGTH), int), np.zeros((samples, LENGTH + 2), int)
    for row in range(samples):
        words = random.integers(3, WORDS, random.integers(1, LENGTH + 1))
        source[row, : len(words)] = words
        target[row, : len(words) + 2] = [START, *words[::-1], END]
    return source, target


@case
def translation(wrap: Wrap) -> Any:
    """An encoder and a decoder with masks of padding and of what comes later; decoded greedily."""
    source, target = phrases()
    inputs = keras.Input((None,), dtype="int64", name="source")
    x = Placed(LENGTH, masked=True)(inputs)
    encoder = keras.Model(inputs, fed_forward(attended(x, x)))
    so_far, encoded = keras.Input((None,), dtype="int64", name="target"), keras.Input((None, WIDTH))
    y = Placed(LENGTH + 1, masked=True)(so_far)
    y = fed_forward(attended(attended(y, y, use_causal_mask=True), encoded))
    decoder = keras.Model([so_far, encoded], keras.layers.Dense(WORDS, activation="softmax")(y))
    model = wrap(keras.Model({"source": inputs, "target": so_far}, decoder([so_far, encoder(inputs)])))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    rows = tf.data.Dataset.from_tensor_slices((source, target))
    rows = rows.map(lambda x, y: ({"source": x, "target": y[:-1]}, y[1:])).batch(8)
    history = model.fit(rows.skip(1), validation_data=rows.take(1), epochs=2, verbose=0)
    few, decoded = source[:4], np.zeros((4, LENGTH + 2), int)
    decoded[:, 0] = START
    for place in range(LENGTH + 1):
        probabilities = model.predict({"source": few, "target": decoded[:, :-1]}, verbose=0)
        decoded[:, place + 1] = probabilities[:, place].argmax(-1)
    return {**trained(model, history), "evaluate": model.evaluate(rows, verbose=0), "decoded": decoded}


class Writes(keras.callbacks.Callback):
    """Goes on with a text after every epoch, by what the model says is likely."""

    def __init__(self, start: list[int], model: Any = None) -> None:
        super().__init__()
        self.start, self.given, self.texts = start, model, []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        model, random, tokens = self.given or self.model, np.random.default_rng(epoch), list(self.start)
        while len(tokens) < LENGTH:
            padded = np.array([tokens + [0] * (LENGTH - len(tokens))])
            logits = model.predict(padded, verbose=0)[0][0, len(tokens) - 1]
            likely = np.exp(logits - logits.max())
            tokens.append(int(random.choice(WORDS, p=likely / likely.sum())))
        self.texts.append(tokens)


def verses(batch: int) -> Any:
    """Lines of text, made into numbers by a layer in the pipeline; each word is to foretell the next."""
    numbers = keras.layers.TextVectorization(WORDS, output_sequence_length=LENGTH + 1)
    numbers.adapt(VERSES)
    lines = tf.data.Dataset.from_tensor_slices(VERSES * 4).shuffle(20, seed=3).batch(batch)
    return lines.map(numbers).map(lambda tokens: (tokens[:, :-1], tokens[:, 1:])), numbers.get_vocabulary()


def gpt() -> Any:
    tokens = keras.Input((LENGTH,), dtype="int64")
    x = Placed(LENGTH)(tokens)
    for _ in range(2):
        x = fed_forward(attended(x, x, use_causal_mask=True))
    return keras.Model(tokens, [keras.layers.Dense(WORDS)(x), x])


@case
def small_gpt(wrap: Wrap) -> Any:
    """Its second output has no loss; what it writes after each epoch each rank writes for itself."""
    rows, vocabulary = verses(10)
    model = wrap(gpt())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss=[loss, None])
    writes = Writes([2, 3])
    history = model.fit(rows, epochs=2, callbacks=[writes], verbose=0)
    return {**trained(model, history), "texts": [[vocabulary[each] for each in text] for text in writes.texts]}


def letters() -> tuple[Any, Any, Any]:
    """One-hot characters: a line, its words backwards, and that one step later."""
    lines = [(line, "\t" + " ".join(reversed(line.split())) + "\n") for line in VERSES * 3]
    known = sorted({letter for pair in lines for text in pair for letter in text} | {" "})
    long = max(len(text) for pair in lines for text in pair)
    given, so_far, wanted = (np.zeros((len(lines), long, len(known))) for _ in range(3))
    for row, (line, target) in enumerate(lines):
        for place, letter in enumerate(line.ljust(long)):
            given[row, place, known.index(letter)] = 1
        for place, letter in enumerate(target.ljust(long)):
            so_far[row, place, known.index(letter)] = 1
            if place:
                wanted[row, place - 1, known.index(letter)] = 1
        wanted[row, -1, known.index(" ")] = 1
    return given, so_far, wanted


@case
def sequence_to_sequence(wrap: Wrap) -> Any:
    """LSTMs; models to decode with are made of the trained layers and their states go around."""
    given, so_far, wanted = letters()
    kinds, units = given.shape[-1], 5
    encoder_inputs, decoder_inputs = keras.Input((None, kinds)), keras.Input((None, kinds))
    _, *states = keras.layers.LSTM(units, return_state=True)(encoder_inputs)
    decoder = keras.layers.LSTM(units, return_sequences=True, return_state=True, name="decoder")
    hidden, *_ = decoder(decoder_inputs, initial_state=states)
    outputs = keras.layers.Dense(kinds, activation="softmax", name="letters")(hidden)
    model = wrap(keras.Model([encoder_inputs, decoder_inputs], outputs))
    model.compile("rmsprop", "categorical_crossentropy", metrics=["accuracy"])
    history = model.fit([given, so_far], wanted, batch_size=5, epochs=2, validation_split=0.2, verbose=0)

    encoder = keras.Model(model.input[0], model.layers[2].output[1:])
    before = [keras.Input((units,)) for _ in states]
    hidden, *after = model.get_layer("decoder")(model.input[1], initial_state=before)
    step = keras.Model([model.input[1], *before], [model.get_layer("letters")(hidden), *after])
    decoded = []
    for encode, decode in ((encoder, step), (wrap(encoder), wrap(step))):
        state = encode.predict(given[:2], verbose=0)
        letter, text = so_far[:2, :1], []
        for _ in range(4):
            probabilities, *state = decode.predict([letter, *state], verbose=0)
            text.append(probabilities[:, 0])
            letter = np.eye(kinds)[probabilities.argmax(-1)]
        decoded.append(text)
    return {**trained(model, history), "decoded": decoded}


@case
def text_written_while_it_trains(wrap: Wrap) -> Any:
    """Callbacks drive it: a rate by epoch, an early stop that brings back the best weights, and two that write, the
    one with the model that Keras hands over, the other with the one that the user has.
    """
    tokens = keras.Input((LENGTH,), dtype="int64")
    hidden = keras.layers.GRU(WIDTH, return_sequences=True)(keras.layers.Embedding(WORDS, WIDTH)(tokens))
    model = wrap(keras.Model(tokens, [keras.layers.Dense(WORDS)(hidden), hidden]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.RMSprop(0.01), [loss, None])
    first, second = Writes([4]), Writes([5, 2], model)
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate if epoch < 2 else rate * 30),
        keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True),
        first,
        keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: second.start.append(epoch)),
        second,
    ]
    rows, _ = verses(7)
    history = model.fit(rows, validation_data=verses(9)[0].take(1), epochs=8, callbacks=callbacks, verbose=0)
    assert 3 <= len(first.texts) < 8
    return {**trained(model, history), "epochs": history.epoch, "texts": [first.texts, second.texts]}
