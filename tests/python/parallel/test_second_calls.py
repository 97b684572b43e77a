"""A call that was made before, with the same arguments, traces nothing and makes no more iterators than Keras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CUT = 4  # traces to cut up the batches of a dataset
PYTHON_INPUTS = ("generator", "PyDataset")
SCRIPT = Path(__file__).parent / "scripts" / "second_call.py"


@pytest.mark.full
def test_a_call_that_was_made_before_traces_nothing(scripts: Any) -> None:
    plain, ranks = scripts.ranks(1, SCRIPT), scripts.ranks(2, SCRIPT)
    assert (plain.code, ranks.code) == (0, 0), plain.err + ranks.err
    of_keras, ours = json.loads(plain.out), json.loads(ranks.out)
    assert of_keras["fit arrays"][0] and of_keras["fit arrays"][1]  # both are counted
    # Keras makes another dataset of a generator or PyDataset in each call, which must be cut up anew.
    most = {call: of_keras[call][0] + CUT if call.endswith(PYTHON_INPUTS) else 0 for call in ours}
    traced = {call: traces for call, (traces, _) in ours.items() if traces > most[call]}
    assert not traced, traced
    more = {call: (count, of_keras[call][1]) for call, (_, count) in ours.items() if count > of_keras[call][1]}
    assert not more, more
