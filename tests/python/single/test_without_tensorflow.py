"""An environment without TensorFlow: one rank is plain Keras, and several ranks say what is missing.

TARANTELLA_WITHOUT_TENSORFLOW names Keras's backend, as the rows `jax` and `torch` of tools/compatibility.sh do.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "scripts/train_and_save.py"
BACKEND = os.environ.get("TARANTELLA_WITHOUT_TENSORFLOW", "")

pytestmark = pytest.mark.skipif(not BACKEND, reason="for environments without TensorFlow")


def test_one_rank_is_plain_keras(scripts: Any, tmp_path: Path) -> None:
    assert importlib.util.find_spec("tensorflow") is None
    done = scripts.plain(SCRIPT.read_text(), str(tmp_path), KERAS_BACKEND=BACKEND)
    assert (done.code, done.out) == (0, "equal\n"), done.err


@pytest.mark.skipif(BACKEND != "jax", reason="of the JAX backend")
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (2, []),
        (3, []),
        (4, ["shuffled"]),
        (2, ["eager"]),
        (2, ["two_steps", "shuffled"]),
        (2, ["float32"]),
        (2, ["masked"]),
    ],
    ids=str,
)
def test_ranks_train_on_jax_to_the_numbers_of_one_process(
    scripts: Any, tmp_path: Path, ranks: int, options: list[str]
) -> None:
    script, tolerance = SCRIPT.with_name("train_mlp.py"), 1e-5 if "float32" in options else 1e-12
    one = scripts.plain(script.read_text(), str(tmp_path / "one"), *options, KERAS_BACKEND=BACKEND)
    assert (one.code, one.out) == (0, ""), one.err
    several = scripts.ranks(ranks, script, str(tmp_path / "several"), *options, KERAS_BACKEND=BACKEND)
    assert (several.code, several.out) == (0, ""), several.err
    assert "is experimental on several ranks" in several.err and "UserWarning" not in several.err
    expected = np.load(tmp_path / "one.0.npz")
    for rank in range(ranks):
        found = np.load(tmp_path / f"several.{rank}.npz")
        assert {*found} == {*expected} and len(expected) > 10
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], tolerance, tolerance, err_msg=f"{name} on {rank}")


@pytest.mark.skipif(BACKEND != "jax", reason="of the JAX backend")
def test_what_is_missing_on_jax_is_refused_on_every_rank(scripts: Any, tmp_path: Path) -> None:
    done = scripts.ranks(2, SCRIPT.with_name("missing_on_jax.py"), str(tmp_path), KERAS_BACKEND=BACKEND)
    assert (done.code, done.out) == (0, ""), done.err


@pytest.mark.skipif(BACKEND == "jax", reason="of backends on which ranks cannot train")
def test_two_ranks_say_what_is_missing(scripts: Any, tmp_path: Path) -> None:
    done = scripts.ranks(2, SCRIPT, str(tmp_path / "files"), KERAS_BACKEND=BACKEND)
    sentence = (
        f"NotImplementedError: several ranks need Keras's tensorflow backend so far (got {BACKEND!r}); "
        "install tensorflow (pip install 'tarantella[tensorflow]') and set KERAS_BACKEND=tensorflow"
    )
    assert (done.code, done.out) == (1, ""), done.err
    assert done.err.count(sentence) == 1, done.err
    assert not (tmp_path / "files").exists()
