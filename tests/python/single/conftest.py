"""What the tests of one process share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def beside_examples() -> Iterator[None]:
    """Lets a test import `common` of the examples, which is forgotten afterwards."""
    path = list(sys.path)
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name.split(".")[0] == "common"]:
        del sys.modules[name]
