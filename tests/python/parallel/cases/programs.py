"""Programs on other data than text as people write them, small: recommender, graphs, preprocessing, bags."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import CLASSES, Wrap, case, results, trained

USERS, FILMS = 9, 12
NODES, FEATURES = 6, 4


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
    read = [keras.layers.LSTM(units)(keras.layers.Embedding(11, 5)(each)) for units, each in ((6, title), (3, body))]
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
