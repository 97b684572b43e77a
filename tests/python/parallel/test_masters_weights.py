"""A call starts from the weights that the master has set or loaded, whatever ranks did before."""

from __future__ import annotations

from typing import Any

SOURCE = """
import sys, numpy as np, keras
import tarantella as tnt
rank, out = tnt.get_rank(), sys.argv[1]
keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(5, 1, (16, 2)).astype("float32"); y = np.ones((16, 1), "float32")
inner = keras.Sequential([
    keras.Input((2,)), keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
wanted = [value + 0.25 for value in inner.get_weights()]
plain = keras.models.clone_model(inner)
plain.compile("sgd", "mse")
plain.set_weights(wanted)
plain.save_weights(f"{out}/{rank}.weights.h5")
model = tnt.Model(inner)
model.compile("sgd", "mse")
generators = [v for v in inner.variables if v.name == "seed_generator_state"]
calls = {
    "predict": lambda each: each.predict(x, verbose=0),
    "evaluate": lambda each: each.evaluate(x, y, verbose=0),
    "predict_on_batch": lambda each: each.predict_on_batch(x),
    "test_on_batch": lambda each: each.test_on_batch(x, y),
}

def of_all(variables):
    mine = np.concatenate([np.asarray(v).ravel().astype("float64") for v in variables])
    return tnt.Allgatherv().execute(mine[None])

def is_as_in_keras(call):
    np.testing.assert_allclose(calls[call](model), calls[call](plain), 1e-5, 1e-5, err_msg=call)
    assert (of_all(inner.weights) == np.concatenate([value.ravel() for value in wanted])).all(), call

# The first train_on_batch starts from the master's weights, whichever call came before it.
model.predict_on_batch(x)
if tnt.is_master_rank():
    model.set_weights(wanted)
model.train_on_batch(x, y)
trained = of_all(inner.trainable_weights)
assert (trained[0] == trained[1]).all()

# Not their mean with the moving statistics of the other ranks, which have stepped.
for call in calls:
    for change in (lambda: model.set_weights(wanted), lambda: model.load_weights(f"{out}/0.weights.h5")):
        for _ in range(3):
            model.train_on_batch(x, y)
        if tnt.is_master_rank():
            change()
        is_as_in_keras(call)

# Without steps between them, too; nobody's random numbers start again.
states = of_all(generators)
for call in ("test_on_batch", "predict_on_batch", "test_on_batch"):
    inner.set_weights([value + rank for value in wanted])
    is_as_in_keras(call)
assert (of_all(generators) == states).all() and (states[0] != states[1]).any()

# What ranks computed from their own rows is averaged, where nobody has set weights.
for call in calls:
    model.train_on_batch(x, y)
    before = of_all(inner.non_trainable_weights)
    assert (before[0] != before[1]).all()
    calls[call](model)
    np.testing.assert_allclose(of_all(inner.non_trainable_weights), [before.mean(axis=0)] * 2, 1e-6, err_msg=call)
"""


def test_calls_start_from_what_the_master_has_set(scripts: Any, tmp_path: Any) -> None:
    ended = scripts.ranks(2, SOURCE, str(tmp_path))
    assert ended.code == 0, ended.err
    assert "ranks had different values, and now have the master's" in ended.err
