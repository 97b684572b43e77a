"""Copies of a trained model's Keras model are plain Keras, and models that are gone leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

HEAD = """
import copy, gc, io, pickle, numpy as np, keras
import tarantella as tnt
rank = tnt.get_rank()
keras.utils.set_random_seed(3)
x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
def net():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
def fitted():
    model = tnt.Model(net())
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    model.fit(x, x[:, :1], batch_size=4, verbose=0)
    return model
"""


def test_copies_of_the_keras_model_are_plain_keras(scripts: Any) -> None:
    """Only one rank trains them: a hook that is left would wait for the other rank or scale the loss."""
    source = HEAD + (
        "model = fitted()\n"
        "inner = model.keras_model\n"
        "def hooks(each): return [v for v in vars(each).values() if hasattr(v, '_tarantella_original')]\n"
        "def parts(each): return [each, each.optimizer, each._loss_tracker, *each.metrics, *each.layers]\n"
        "assert hooks(inner) and hooks(inner.optimizer)\n"
        "inner.save(f'{__file__}.{rank}.keras')\n"
        "copies = [copy.deepcopy(inner), copy.copy(inner), pickle.loads(pickle.dumps(inner)),\n"
        "          keras.models.load_model(f'{__file__}.{rank}.keras'), keras.models.clone_model(inner)]\n"
        "copies[-1].compile(keras.optimizers.Adam.from_config(inner.optimizer.get_config()), 'mse', metrics=['mae'])\n"
        "copies[-1].set_weights(inner.get_weights())\n"
        "copies[-1].optimizer.build(copies[-1].trainable_variables)\n"
        "inner.optimizer.save_own_variables(store := {})\n"
        "copies[-1].optimizer.load_own_variables(store)\n"
        "reference = net()\n"
        "reference.compile(keras.optimizers.Adam(0.01), 'mse', metrics=['mae'])\n"
        "reference.set_weights(inner.get_weights())\n"
        "reference.optimizer.build(reference.trainable_variables)\n"
        "reference.optimizer.load_own_variables(store)\n"
        "if rank == 1:\n"
        "    wanted = reference.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0).history\n"
        "    for each in copies:\n"
        "        assert not any(hooks(part) for part in parts(each)), vars(each)\n"
        "        assert each.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0).history == wanted\n"
        "        for one, other in zip(each.get_weights(), reference.get_weights()):\n"
        "            np.testing.assert_array_equal(one, other)\n"
        "    assert not hooks(copy.deepcopy(inner.optimizer))\n"
        "tnt.Barrier().execute()\n"
        "model.fit(x, x[:, :1], batch_size=4, verbose=0)\n"
        "print('same')\n"
    )
    ended = scripts.ranks(2, source, timeout=200)
    assert ended.code == 0, ended.err
    assert "same" in ended.out


@pytest.mark.full
def test_models_that_are_gone_give_back_their_memory(scripts: Any) -> None:
    source = HEAD + (
        "def shared():\n"
        "    keras.backend.clear_session()\n"
        "    gc.collect()\n"
        "    return sum('memfd' in line for line in open('/proc/self/maps'))\n"
        "fitted()\n"
        "first = shared()\n"
        "for _ in range(4): fitted()\n"
        "assert shared() == first, (first, shared())\n"
        "model = fitted()\n"
        "for _ in range(4):\n"
        "    model.compile(keras.optimizers.Adam(0.01), 'mse')\n"
        "    model.fit(x, x[:, :1], batch_size=4, verbose=0)\n"
        "assert shared() == first + 1, (first, shared())\n"
        "print('given back')\n"
    )
    ended = scripts.ranks(2, source, timeout=200)
    assert ended.code == 0, ended.err
    assert "given back" in ended.out
