"""Beam search: the most likely sequences of tokens, one token of all beams at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

EOS = 1
LEAST = -1e9  # the log-probability of what cannot be

# From the last tokens, of shape (batch * beams,), their position, and the cache to logits, of shape
# (batch * beams, vocabulary), and the new cache.
Step = Callable[[Any, Any, list[Any]], tuple[Any, list[Any]]]


def length_penalty(length: Any, alpha: float) -> Any:
    """Returns what the log-probability of a sequence is divided by, so that short ones have no advantage."""
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def pick(x: Any, chosen: Any, size: int) -> Any:
    """Returns those rows of x, of shape (batch, n, ...), that `chosen` names, of shape (batch, size)."""
    n, rest = x.shape[1], ops.shape(x)[2:]
    rows = chosen + ops.arange(ops.shape(x)[0])[:, None] * n
    flat = ops.take(ops.reshape(x, (-1, *rest)), ops.reshape(rows, (-1,)), axis=0)
    return ops.reshape(flat, (-1, size, *rest))


def search(step: Step, cache: list[Any], batch_size: Any, length: Any, beam_size: int, alpha: float) -> tuple[Any, Any]:
    """Returns the best sequences and their scores, the best first.

    The sequences are int32 of shape (batch, beam_size, length), with zeros after EOS; a sequence that does not end
    within `length` tokens is there only if none does. The scores are float32 of shape (batch, beam_size): the
    log-probability divided by `length_penalty`. cache: what `step` keeps of earlier tokens, tensors whose first
    dimension is batch * beam_size. The token before the first is 0.
    """
    positions = ops.arange(length)
    nothing = ops.zeros((batch_size, beam_size, length), dtype="int32")
    none_yet = ops.full((batch_size, beam_size), LEAST)
    # All beams start alike: only the first counts in the first step.
    first = none_yet * ops.cast(ops.arange(beam_size) > 0, "float32")
    first = ops.reshape(first, (-1, beam_size))

    def goes_on(index, last, alive, log_probs, done, scores, cache):  # type: ignore[no-untyped-def]
        could_reach = log_probs[:, 0] / length_penalty(length, alpha)
        return ops.logical_and(index < length, ops.any(could_reach > scores[:, -1]))

    def advance(index, last, alive, log_probs, done, scores, cache):  # type: ignore[no-untyped-def]
        logits, cache = step(ops.reshape(last, (-1,)), index, cache)
        vocabulary = logits.shape[-1]
        of_next = ops.reshape(ops.log_softmax(logits), (-1, beam_size, vocabulary)) + log_probs[:, :, None]
        # At most one continuation of each beam ends, so among twice as many enough go on.
        best, chosen = ops.top_k(ops.reshape(of_next, (-1, beam_size * vocabulary)), 2 * beam_size)
        parents, tokens = chosen // vocabulary, chosen % vocabulary
        sequences = ops.where(positions == index, tokens[:, :, None], pick(alive, parents, 2 * beam_size))
        ends = ops.equal(tokens, EOS)

        log_probs, kept = ops.top_k(ops.where(ends, LEAST, best), beam_size)
        alive, last = pick(sequences, kept, beam_size), pick(tokens, kept, beam_size)
        parents = pick(parents, kept, beam_size)
        cache = [_reorder(each, parents, beam_size) for each in cache]

        ended = ops.where(ends, best / length_penalty(index + 1, alpha), LEAST)
        scores, kept = ops.top_k(ops.concatenate([scores, ended], axis=1), beam_size)
        together = ops.reshape(ops.concatenate([done, sequences], axis=1), (-1, 3 * beam_size, ops.shape(done)[2]))
        return index + 1, last, alive, log_probs, pick(together, kept, beam_size), scores, cache

    start = (ops.convert_to_tensor(0, "int32"), nothing[:, :, 0], nothing, first, nothing, none_yet, cache)
    _, _, alive, log_probs, done, scores, _ = ops.while_loop(goes_on, advance, start)
    ended = scores[:, :1] > LEAST / 2
    ids = ops.where(ended[:, :, None], done, alive)
    return ids, ops.where(ended, scores, log_probs / length_penalty(length, alpha))


def _reorder(cached: Any, parents: Any, beam_size: int) -> Any:
    """Gives each beam the rows of the beam that it continues."""
    rest = ops.shape(cached)[1:]
    return ops.reshape(pick(ops.reshape(cached, (-1, beam_size, *rest)), parents, beam_size), (-1, *rest))


def repeat_for_beams(x: Any, beam_size: int) -> Any:
    """Returns x, of shape (batch, ...), with `beam_size` copies of each row: (batch * beam_size, ...)."""
    return keras.tree.map_structure(lambda each: ops.repeat(each, beam_size, axis=0), x)
