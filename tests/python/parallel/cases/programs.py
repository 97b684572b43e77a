"""Programs as people write them, small: recommender, graphs, preprocessing, tickets, bags of instances, and on text:
translation, GPT, decoding loops, what callbacks write as it trains. In one file, since starting ranks costs most.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import CLASSES, Wrap, case, full, results, trained

USERS, FILMS = 9, 12
NODES, FEATURES = 6, 4
WORDS, WIDTH, LENGTH = 13, 6, 5
START, END = 1, 2
VERSES = ["the cat sat on the mat", "a dog ran", "then the dog sat", "a cat ran to the dog", "on and on a dog ran"]


class Recommender(keras.Model):
    """How much a user likes a film: the product of their vectors, row by row, plus what each is liked anyway."""

    def __init__(self) -> None:
        super().__init__()
        regular = {"embeddings_regularizer": keras.regularizers.L2(1e-3), "embeddings_initializer": "he_normal"}
        self.user, self.film = keras.layers.Embedding(USERS, 4, **regular), keras.layers.Embedding(FILMS, 4, **regular)
        self.users, self.films = keras.layers.Embedding(USERS, 1), keras.layers.Embedding(FILMS, 1)

    def call(self, pairs: Any) -> Any:
        user, film = pairs[:, 0], pairs[:, 1]
        product = keras.ops.sum(self.user(user) * self.film(film), axis=1, keepdims=True)
        return keras.ops.sigmoid(product + self.users(user) + self.films(film))


@case
def recommender(wrap: Wrap) -> Any:
    random = np.random.default_rng(1)
    pairs = np.stack([random.integers(0, USERS, 61), random.integers(0, FILMS, 61)], axis=1)
    likes = random.uniform(size=61)
    model = wrap(Recommender())
    model.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(), metrics=["mae"])
    history = model.fit(pairs, likes, batch_size=16, epochs=3, validation_split=0.2, verbose=0)
    unseen = np.stack([np.full(FILMS, 3), np.arange(FILMS)], axis=1)
    best = model.predict(unseen, verbose=0).flatten().argsort()[-4:][::-1]
    return {**results(model, history, pairs, likes), "best": best}


class Passing(keras.layers.Layer):
    """Each node adds up what its neighbours say and remembers it in a gated unit."""

    def __init__(self, units: int, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.enter, self.message = keras.layers.Dense(units), keras.layers.Dense(units, activation="tanh")
        self.cell = keras.layers.GRUCell(units)

    def build(self, shape: Any) -> None:
        self.enter.build(shape)
        units = (None, self.enter.units)
        self.message.build(units)
        self.cell.build(units)

    def call(self, features: Any, edges: Any) -> Any:
        nodes = self.enter(features)
        for _ in range(self.rounds):
            heard = keras.ops.matmul(edges, self.message(nodes))
            flat = [keras.ops.reshape(each, (-1, self.enter.units)) for each in (heard, nodes)]
            nodes = keras.ops.reshape(self.cell(flat[0], [flat[1]])[0], keras.ops.shape(nodes))
        return nodes


@full
@case
def graph_network(wrap: Wrap) -> Any:
    """Graphs of several sizes, a matrix of edges each; the mean over their nodes says what they are."""
    random = np.random.default_rng(2)
    sizes = random.integers(2, NODES + 1, 29)
    there = (np.arange(NODES) < sizes[:, None]).astype(float)
    edges = (random.uniform(size=(29, NODES, NODES)) < 0.4) * there[:, None] * there[:, :, None]
    edges = np.maximum(edges, edges.transpose(0, 2, 1)) / sizes[:, None, None]
    x = {"nodes": random.normal(size=(29, NODES, FEATURES)), "edges": edges, "there": there}
    y = (edges.sum((1, 2)) > 1.5).astype(float)
    inputs = {name: keras.Input(each.shape[1:], name=name) for name, each in x.items()}
    nodes = Passing(5, rounds=2)(inputs["nodes"], inputs["edges"])
    weights = keras.ops.expand_dims(inputs["there"], -1)
    pooled = keras.ops.sum(nodes * weights, axis=1) / keras.ops.sum(weights, axis=1)
    hidden = keras.layers.Dense(8, activation="relu")(pooled)
    model = wrap(keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden)))
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=[keras.metrics.AUC(num_thresholds=30)])
    history = model.fit(x, y, batch_size=8, epochs=2, class_weight={0: 2.0, 1: 0.5}, verbose=0)
    return results(model, history, x, y)


def table(samples: int = 31) -> tuple[Any, Any]:
    """A table of people: numbers, codes, words and sentences."""
    random = np.random.default_rng(samples)
    words = np.array(["red", "green", "blue", "grey"])
    columns = {
        "age": random.normal(40, 12, (samples, 1)),
        "pixels": random.integers(0, 256, (samples, 3)).astype(float),
        "code": random.choice([3, 17, 99, 1000], (samples, 1)),
        "colour": random.choice(words, (samples, 1)),
        "says": np.array([" ".join(random.choice(words, 3)) for _ in range(samples)])[:, None],
    }
    return columns, random.integers(0, CLASSES, samples)


def prepared(columns: Any) -> tuple[Any, Any]:
    """Inputs, and what layers that have seen the columns make of them."""
    kinds = {"code": "int64", "colour": "string", "says": "string"}
    inputs = {name: keras.Input(x.shape[1:], name=name, dtype=kinds.get(name)) for name, x in columns.items()}
    L = keras.layers  # noqa: N806
    normal, parts, code, colour = L.Normalization(), L.Discretization(num_bins=4), L.IntegerLookup(), L.StringLookup()
    says = L.TextVectorization(output_sequence_length=4)
    for layer, name in ((normal, "age"), (parts, "age"), (code, "code"), (colour, "colour"), (says, "says")):
        layer.adapt(columns[name])
    words = L.Embedding(says.vocabulary_size(), 3)(says(inputs["says"]))
    return inputs, L.Concatenate()(
        [
            normal(inputs["age"]),
            L.CategoryEncoding(4, "one_hot")(parts(inputs["age"])),
            L.CategoryEncoding(code.vocabulary_size(), "multi_hot")(code(inputs["code"])),
            L.CategoryEncoding(colour.vocabulary_size(), "count")(colour(inputs["colour"])),
            L.Rescaling(1 / 127.5, offset=-1)(inputs["pixels"]),
            L.GlobalAveragePooling1D()(words),
        ]
    )


@case
def preprocessing_in_the_model(wrap: Wrap) -> Any:
    """Words go in, as a dataset and as arrays."""
    columns, y = table()
    inputs, features = prepared(columns)
    outputs = keras.layers.Dense(CLASSES)(keras.layers.Dense(8, activation="relu")(features))
    model = wrap(keras.Model(inputs, outputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    rows = tf.data.Dataset.from_tensor_slices((columns, y)).shuffle(31, seed=5).batch(7)
    first = model.fit(rows, epochs=2, verbose=0)
    whole = {name: tf.constant(each) for name, each in columns.items()}
    second = model.fit(whole, y, batch_size=9, verbose=0)
    return {**results(model, second, whole, y), "first": dict(first.history)}


@case
def preprocessing_in_the_pipeline(wrap: Wrap) -> Any:
    """As a model of its own, mapped over batches; both as one model predict from what comes in."""
    columns, y = table()
    inputs, features = prepared(columns)
    prepare = keras.Model(inputs, features)
    hidden = keras.Input(features.shape[1:])
    learns = keras.Model(hidden, keras.layers.Dense(CLASSES)(hidden))
    model = wrap(learns)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    rows = tf.data.Dataset.from_tensor_slices((columns, y)).batch(7)
    mapped = rows.map(lambda x, y: (prepare(x), y), num_parallel_calls=2).prefetch(1)
    history = model.fit(mapped, epochs=2, verbose=0)
    both = wrap(keras.Model(inputs, learns(features)))
    return {**trained(model, history), "predict": both.predict(rows.map(lambda x, y: x), verbose=0)}


@full
@case
def tickets(wrap: Wrap) -> Any:
    """Three inputs of several kinds, two outputs, a weight, losses and metrics for each."""
    random = np.random.default_rng(4)
    x = {
        "title": random.integers(0, 11, (33, 4)),
        "body": random.integers(0, 11, (33, 7)),
        "tags": random.integers(0, 2, (33, 3)).astype(float),
    }
    urgent, office = random.integers(0, 2, (33, 1)).astype(float), np.eye(CLASSES)[random.integers(0, CLASSES, 33)]
    y = {"urgent": urgent, "office": office}
    title, body = (keras.Input((None,), dtype="int64", name=name) for name in ("title", "body"))
    tags = keras.Input((3,), name="tags")
    readers = (keras.layers.LSTM(6), title), (keras.layers.GlobalAveragePooling1D(), body)
    read = [reader(keras.layers.Embedding(11, 5)(each)) for reader, each in readers]
    together = keras.layers.concatenate([*read, tags])
    outputs = {
        "urgent": keras.layers.Dense(1, name="urgent")(together),
        "office": keras.layers.Dense(CLASSES, activation="softmax", name="office")(together),
    }
    model = wrap(keras.Model({"title": title, "body": body, "tags": tags}, outputs))
    model.compile(
        keras.optimizers.RMSprop(1e-2),
        {"urgent": keras.losses.BinaryCrossentropy(from_logits=True), "office": "categorical_crossentropy"},
        loss_weights={"urgent": 1.0, "office": 0.2},
        metrics={"urgent": [keras.metrics.AUC(from_logits=True, num_thresholds=20)], "office": ["accuracy", "mae"]},
        weighted_metrics={"office": [keras.metrics.Precision()]},
    )
    weights = {"urgent": np.linspace(0, 2, 33), "office": np.linspace(1, 3, 33)}
    history = model.fit(x, y, batch_size=10, epochs=2, sample_weight=weights, validation_split=0.2, verbose=0)
    return results(model, history, x, y, sample_weight=weights)


class Attention(keras.layers.Layer):
    """Which instances of a bag matter: gated scores, and a softmax over the bag."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units

    def build(self, shapes: Any) -> None:
        width = shapes[0][-1]
        regular = keras.regularizers.L2(0.01)
        self.v = self.add_weight((width, self.units), "glorot_uniform", regularizer=regular, name="v")
        self.u = self.add_weight((width, self.units), "glorot_uniform", regularizer=regular, name="u")
        self.w = self.add_weight((self.units, 1), "glorot_uniform", regularizer=regular, name="w")

    def call(self, instances: Any) -> Any:
        ops = keras.ops
        gated = [ops.tanh(ops.matmul(x, self.v)) * ops.sigmoid(ops.matmul(x, self.u)) for x in instances]
        shares = ops.softmax(ops.stack([ops.matmul(each, self.w) for each in gated]), axis=0)
        return [shares[place] for place in range(len(instances))]


@case
def bags_of_instances(wrap: Wrap) -> Any:
    """A batch is one bag: all ranks but one have no rows."""
    random = np.random.default_rng(6)
    bags = [random.normal(size=(11, FEATURES)) for _ in range(3)]
    labels = random.integers(0, 2, 11)
    inputs = [keras.Input((FEATURES,)) for _ in bags]
    shared = keras.layers.Dense(5, activation="relu")
    instances = [shared(each) for each in inputs]
    shares = Attention(4)(instances)
    scaled = [keras.layers.multiply([share, each]) for share, each in zip(shares, instances, strict=True)]
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(keras.layers.concatenate(scaled)))
    weighs = wrap(keras.Model(inputs, shares))
    model = wrap(model)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    stops = keras.callbacks.EarlyStopping("val_loss", patience=10, mode="min")
    history = model.fit(
        bags, labels, validation_data=([each[:4] for each in bags], labels[:4]), epochs=3, batch_size=1,
        class_weight={0: 0.7, 1: 1.4}, callbacks=[stops], verbose=0,
    )  # fmt: skip
    found = results(model, history, bags, labels, batch_size=1)
    return {**found, "shares": weighs.predict(bags, batch_size=1, verbose=0)}


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


@full
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
    x = fed_forward(attended(x, x, use_causal_mask=True))
    return keras.Model(tokens, [keras.layers.Dense(WORDS)(x), x])


@full
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


@full
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


@full
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
