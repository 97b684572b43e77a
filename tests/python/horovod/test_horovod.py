"""Horovod's API: its arithmetic, training as plain Keras on the rows of all ranks, saving and loading."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.mark.parametrize("ranks", [1, 2, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (3, 4))])
def test_collectives_and_callbacks_have_horovods_arithmetic(ranks: int, scripts: Any) -> None:
    ended = scripts.ranks(ranks, SCRIPTS / "arithmetic.py", options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert ended.out.count("all right") == ranks


def test_ranks_train_as_plain_keras_on_the_rows_of_all(scripts: Any, tmp_path: Path) -> None:
    ended = scripts.ranks(2, SCRIPTS / "training.py", str(tmp_path))
    assert ended.code == 0, ended.err
    assert "the first gradients" not in ended.err  # what the ranks read is the user's business
    plain = scripts.plain((SCRIPTS / "training.py").read_text(), str(tmp_path), "plain", "2")
    assert plain.code == 0, plain.err
    one, other, alone = (dict(np.load(tmp_path / f"{name}.npz")) for name in ("0", "1", "plain"))
    assert one.keys() == other.keys() == alone.keys()
    for name, expected in alone.items():
        assert one[name].tobytes() == other[name].tobytes(), name
        # Half types round gradients to 11 and 8 bits.
        tolerance = {"fp16": 2e-4, "bf16": 2e-3}.get(name.split(".")[0], 1e-9)
        np.testing.assert_allclose(one[name], expected, tolerance, tolerance, err_msg=name)
    kept = scripts.plain(
        "import sys, keras\nkeras.models.load_model(sys.argv[1]).summary()\nassert 'tarantella' not in sys.modules\n",
        str(tmp_path / "best.keras"),
    )
    assert kept.code == 0, kept.err


@pytest.mark.parametrize("ranks", [3, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 4))])
def test_ranks_that_have_joined_are_zeros_to_the_others(ranks: int, scripts: Any) -> None:
    ended = scripts.ranks(ranks, SCRIPTS / "join.py", options=("--output-on-all-devices",))
    assert ended.out.count("all right") == ranks, ended.err
    assert "joined with the dead" not in ended.out
    assert re.search(r"rank 1 .*ended with exit code 7", ended.err)
