"""An environment without TensorFlow: one rank is plain Keras, and several ranks say what is missing.

TARANTELLA_WITHOUT_TENSORFLOW names Keras's backend, as the rows `jax` and `torch` of tools/compatibility.sh do.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "scripts/train_and_save.py"
BACKEND = os.environ.get("TARANTELLA_WITHOUT_TENSORFLOW", "")

pytestmark = pytest.mark.skipif(not BACKEND, reason="for environments without TensorFlow")


def test_one_rank_is_plain_keras(scripts: Any, tmp_path: Path) -> None:
    assert importlib.util.find_spec("tensorflow") is None
    done = scripts.plain(SCRIPT.read_text(), str(tmp_path), KERAS_BACKEND=BACKEND)
    assert (done.code, done.out) == (0, "equal\n"), done.err


def test_two_ranks_say_what_is_missing(scripts: Any, tmp_path: Path) -> None:
    done = scripts.ranks(2, SCRIPT, str(tmp_path / "files"), KERAS_BACKEND=BACKEND)
    sentence = (
        f"NotImplementedError: several ranks need Keras's tensorflow backend so far (got {BACKEND!r}); "
        "install tensorflow (pip install 'tarantella[tensorflow]') and set KERAS_BACKEND=tensorflow"
    )
    assert (done.code, done.out) == (1, ""), done.err
    assert done.err.count(sentence) == 1, done.err
    assert not (tmp_path / "files").exists()
