"""The Transformer of "Attention Is All You Need", https://arxiv.org/abs/1706.03762."""

from __future__ import annotations

from typing import Any

import beam_search
import keras
from keras import ops
from layers import Block, DecoderBlock, SharedEmbedding, future_bias, padding_bias, position_encoding
from model_params import Params


class Transformer(keras.layers.Layer):
    """Encoder and decoder, for training and for translation.

    `transformer([inputs, targets])` returns the logits of each target token, given those before it, as float32 of shape
    (batch, length of targets, vocabulary). `transformer([inputs])` translates: it returns a dict of "outputs", int32
    tokens of shape (batch, length of inputs + extra_decode_length), with zeros after EOS, and "scores", float32 of
    shape (batch,). inputs, targets: integers of shape (batch, length), padded by zeros.
    """

    def __init__(self, params: Params, name: str | None = None) -> None:
        super().__init__(name=name)
        self.hidden_size, self.num_heads = params["hidden_size"], params["num_heads"]
        self.extra_decode_length = params["extra_decode_length"]
        self.beam_size, self.alpha = params["beam_size"], params["alpha"]
        self.embedding = SharedEmbedding(params["vocab_size"], self.hidden_size)
        self.encoder = [Block(params) for _ in range(params["num_hidden_layers"])]
        self.decoder = [DecoderBlock(params) for _ in range(params["num_hidden_layers"])]
        self.encoder_norm, self.decoder_norm = (keras.layers.LayerNormalization(epsilon=1e-6) for _ in range(2))
        self.dropout = keras.layers.Dropout(params["layer_postprocess_dropout"])

    def build(self, input_shape: Any) -> None:
        self.embedding.build()
        for part in (*self.encoder, *self.decoder, self.encoder_norm, self.decoder_norm):
            part.build((None, None, self.hidden_size))

    def compute_output_spec(self, inputs: list[Any], training: bool | None = None) -> Any:
        """Says what `call` returns, which Keras would trace it for."""
        rows = inputs[0].shape[0]
        if len(inputs) == 1:
            return {
                "outputs": keras.KerasTensor((rows, None), "int32"),
                "scores": keras.KerasTensor((rows,), "float32"),
            }
        return keras.KerasTensor((rows, inputs[1].shape[1], self.embedding.vocab_size), "float32")

    def call(self, inputs: list[Any], training: bool | None = None) -> Any:
        memory_bias = padding_bias(inputs[0])
        memory = self.encode(inputs[0], memory_bias, training)
        if len(inputs) == 1:
            return self.translate(inputs[0], memory, memory_bias)
        return self.decode(inputs[1], memory, memory_bias, training)

    def embed(self, tokens: Any, training: bool | None) -> Any:
        x = self.embedding(tokens) + position_encoding(ops.arange(ops.shape(tokens)[1]), self.hidden_size)
        return self.dropout(x, training=training)

    def encode(self, inputs: Any, bias: Any, training: bool | None) -> Any:
        x = self.embed(inputs, training)
        for block in self.encoder:
            x = block(x, bias, training=training)
        return self.encoder_norm(x)

    def decode(self, targets: Any, memory: Any, memory_bias: Any, training: bool | None) -> Any:
        """Returns the logits of all target tokens at once. The input of each position is the token before it."""
        before = ops.pad(targets, [[0, 0], [1, 0]])[:, :-1]
        x, bias = self.embed(before, training), future_bias(ops.shape(targets)[1])
        for block in self.decoder:
            x = block(x, bias, memory, memory_bias, training=training)
        return self.embedding.logits(self.decoder_norm(x))

    def translate(self, inputs: Any, memory: Any, memory_bias: Any) -> dict[str, Any]:
        """Returns the best translations that a beam search finds, and their scores."""
        batch_size, source_length = ops.shape(inputs)
        length = source_length + self.extra_decode_length
        memories = [
            beam_search.repeat_for_beams(block.memory_attention.keys_and_values(memory), self.beam_size)
            for block in self.decoder
        ]
        bias = beam_search.repeat_for_beams(memory_bias, self.beam_size)

        def step(last: Any, index: Any, cache: list[Any]) -> tuple[Any, list[Any]]:
            x = self.embedding(last[:, None]) + position_encoding(ops.reshape(index, (1,)), self.hidden_size)
            known = []
            for number, block in enumerate(self.decoder):
                keys, values = cache[2 * number : 2 * number + 2]
                x, keys, values = block.step(x, index, keys, values, memories[number], bias)
                known += [keys, values]
            return self.embedding.logits(self.decoder_norm(x))[:, 0], known

        shape = (batch_size * self.beam_size, self.num_heads, length, self.hidden_size // self.num_heads)
        cache = [ops.zeros(shape) for _ in range(2 * len(self.decoder))]
        outputs, scores = beam_search.search(step, cache, batch_size, length, self.beam_size, self.alpha)
        return {"outputs": outputs[:, 0], "scores": scores[:, 0]}


class Translator(keras.layers.Layer):
    """Translates by a Transformer, whose weights it shares. Maps inputs to outputs and scores, as described there."""

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        self.transformer = transformer

    def build(self, input_shape: Any) -> None:
        if not self.transformer.built:
            self.transformer.build(input_shape)

    def compute_output_spec(self, inputs: Any) -> tuple[Any, Any]:
        found = self.transformer.compute_output_spec([inputs])
        return found["outputs"], found["scores"]

    def call(self, inputs: Any) -> tuple[Any, Any]:
        found = self.transformer([inputs], training=False)
        return found["outputs"], found["scores"]
