"""The layers of the Transformer.

Shapes: x is (batch, length, hidden_size). A bias is added to the logits of attention, of shape
(batch, heads, length of x, length of source): 0, or NEVER where x must not look.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

NEVER = -1e9


class SharedEmbedding(keras.layers.Layer):
    """One matrix that turns tokens into vectors, and vectors into the logits of tokens."""

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.vocab_size, self.hidden_size = vocab_size, hidden_size

    def build(self, input_shape: Any = None) -> None:
        normal = keras.initializers.RandomNormal(stddev=self.hidden_size**-0.5)
        self.embeddings = self.add_weight(shape=(self.vocab_size, self.hidden_size), initializer=normal, name="weights")

    def call(self, tokens: Any) -> Any:
        # Scaled before the lookup: the gradient is then dense, like that of `logits`, to which it is added.
        return ops.take(self.embeddings * self.hidden_size**0.5, tokens, axis=0)

    def logits(self, x: Any) -> Any:
        return ops.matmul(x, ops.transpose(self.embeddings))


def position_encoding(positions: Any, hidden_size: int) -> Any:
    """Returns sines and cosines of positions, an integer tensor of shape (n,), as (n, hidden_size)."""
    half = hidden_size // 2
    rates = ops.exp(ops.arange(half, dtype="float32") * (-9.21034 / max(half - 1, 1)))  # from 1 down to 1/10000
    angles = ops.cast(positions, "float32")[:, None] * rates[None, :]
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def padding_bias(tokens: Any) -> Any:
    """Returns the bias that hides padding, of shape (batch, 1, 1, length)."""
    return ops.cast(ops.equal(tokens, 0), "float32")[:, None, None, :] * NEVER


def future_bias(length: Any) -> Any:
    """Returns the bias that hides later tokens, of shape (1, 1, length, length)."""
    positions = ops.arange(length)
    return ops.cast(positions[None, :] > positions[:, None], "float32")[None, None] * NEVER


class Attention(keras.layers.Layer):
    """Multi-head attention of x to a source. Its parts are public, since decoding keeps keys and values."""

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.hidden_size, self.num_heads = hidden_size, num_heads
        self.query, self.key, self.value, self.merge = (
            keras.layers.Dense(hidden_size, use_bias=False, name=name) for name in ("query", "key", "value", "merge")
        )
        self.dropout = keras.layers.Dropout(dropout)

    def build(self, shape: Any) -> None:
        for dense in (self.query, self.key, self.value, self.merge):
            dense.build(shape)

    def split(self, x: Any) -> Any:
        """Returns (batch, heads, length, size of a head)."""
        size = self.hidden_size // self.num_heads
        return ops.transpose(ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, size)), (0, 2, 1, 3))

    def keys_and_values(self, source: Any) -> tuple[Any, Any]:
        return self.split(self.key(source)), self.split(self.value(source))

    def attend(self, x: Any, keys: Any, values: Any, bias: Any, training: bool | None = None) -> Any:
        query = self.split(self.query(x)) * (self.hidden_size // self.num_heads) ** -0.5
        weights = ops.softmax(ops.matmul(query, ops.transpose(keys, (0, 1, 3, 2))) + bias)
        heads = ops.matmul(self.dropout(weights, training=training), values)
        return self.merge(ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), (-1, ops.shape(x)[1], self.hidden_size)))


class FeedForward(keras.layers.Layer):
    """Two dense layers for each position."""

    def __init__(self, hidden_size: int, filter_size: int, dropout: float) -> None:
        super().__init__()
        self.wide = keras.layers.Dense(filter_size, activation="relu")
        self.narrow = keras.layers.Dense(hidden_size)
        self.dropout = keras.layers.Dropout(dropout)

    def build(self, shape: Any) -> None:
        self.wide.build(shape)
        self.narrow.build((*shape[:-1], self.wide.units))

    def call(self, x: Any, training: bool | None = None) -> Any:
        return self.narrow(self.dropout(self.wide(x), training=training))


class Block(keras.layers.Layer):
    """One layer of the encoder: attention to itself, then a feed-forward network.

    Each part normalizes its input, and its output is added to what came in.
    """

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__()
        self.attention = self.make_attention(params)
        self.network = FeedForward(params["hidden_size"], params["filter_size"], params["relu_dropout"])
        self.attention_norm, self.network_norm = (keras.layers.LayerNormalization(epsilon=1e-6) for _ in range(2))
        self.dropout = keras.layers.Dropout(params["layer_postprocess_dropout"])

    @staticmethod
    def make_attention(params: dict[str, Any]) -> Attention:
        return Attention(params["hidden_size"], params["num_heads"], params["attention_dropout"])

    def build(self, shape: Any) -> None:
        for part in (self.attention, self.network, self.attention_norm, self.network_norm):
            part.build(shape)

    def add(self, x: Any, y: Any, training: bool | None) -> Any:
        return x + self.dropout(y, training=training)

    def call(self, x: Any, bias: Any, training: bool | None = None) -> Any:
        y = self.attention_norm(x)
        x = self.add(x, self.attention.attend(y, *self.attention.keys_and_values(y), bias, training), training)
        return self.add(x, self.network(self.network_norm(x), training=training), training)


class DecoderBlock(Block):
    """One layer of the decoder: a block that also looks at the encoded source, its memory."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.memory_attention = self.make_attention(params)
        self.memory_norm = keras.layers.LayerNormalization(epsilon=1e-6)

    def build(self, shape: Any) -> None:
        super().build(shape)
        self.memory_attention.build(shape)
        self.memory_norm.build(shape)

    def call(self, x: Any, bias: Any, memory: Any, memory_bias: Any, training: bool | None = None) -> Any:
        y = self.attention_norm(x)
        x = self.add(x, self.attention.attend(y, *self.attention.keys_and_values(y), bias, training), training)
        return self.look(x, self.memory_attention.keys_and_values(memory), memory_bias, training)

    def look(self, x: Any, memory: tuple[Any, Any], memory_bias: Any, training: bool | None) -> Any:
        """Returns the output for x after attention to itself. memory: the keys and values of the encoded source."""
        y = self.memory_attention.attend(self.memory_norm(x), *memory, memory_bias, training)
        x = self.add(x, y, training)
        return self.add(x, self.network(self.network_norm(x), training=training), training)

    def step(
        self, x: Any, index: Any, keys: Any, values: Any, memory: tuple[Any, Any], memory_bias: Any
    ) -> tuple[Any, Any, Any]:
        """Decodes the position `index` alone: x is (batch, 1, hidden_size). Returns the output, keys and values.

        keys, values: of all positions. Those before `index` are known, and this call adds those of `index`.
        """
        y = self.attention_norm(x)
        positions = ops.arange(ops.shape(keys)[2])
        here = ops.equal(positions, index)[:, None]
        key, value = self.attention.keys_and_values(y)
        keys, values = ops.where(here, key, keys), ops.where(here, value, values)
        later = ops.cast(positions > index, "float32") * NEVER
        x = self.add(x, self.attention.attend(y, keys, values, later, training=False), training=False)
        return self.look(x, memory, memory_bias, training=False), keys, values
