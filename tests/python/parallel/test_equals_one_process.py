"""N ranks give what plain Keras gives on one process: weights, optimizer, history, evaluate, predict."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from jobs import CASE_NAMES, CASES, TIER


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        parts = [_flat(item, f"{path}/{key}") for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [_flat(item, f"{path}/{place}") for place, item in enumerate(value)]
    else:
        return {path: np.asarray(value)}
    return {key: item for part in parts for key, item in part.items()}


HOSTS = ("2x1", "2x2", "3x1")  # so many hosts, so many ranks on each


def _ranks(file: str, place: int) -> tuple[int | str, ...]:
    """Two for the cases of most files, three for those of each third; for some of plain training one or four more.

    Plain training also runs on several hosts, 2x1 and 2x2 in turn. `make test-all` has all cases on one to four, and
    plain training on all HOSTS.
    """
    hosts = {"training": HOSTS, "gradients": HOSTS[:1]}.get(file, ())
    if TIER == "all":
        return (1, 2, 3, 4, *hosts)
    usual = (3,) if CASE_NAMES.index(file) % 3 == 2 else (2,)
    more = {0: (1,), 4: (4,)}.get(place % 8, ()) if hosts else ()
    return (*usual, *more, *hosts[place // 2 % 2 :][:1])


def _marks(tier: str, place: int, ranks: int | str) -> list[pytest.MarkDecorator]:
    """A quarter of the cases on hosts is in the gate. Other commands than `make test` have all cases in the rest."""
    in_gate = TIER == "gate" and (isinstance(ranks, int) or place % 8 in (0, 2))
    return [getattr(pytest.mark, tier)] if tier else [] if in_gate else [pytest.mark.full]


PARAMETERS = [
    pytest.param(file.stem, name, ranks, marks=_marks(tier, place, ranks))
    for file in CASES
    for place, (tier, name) in enumerate(
        re.findall(r"^(?:@(extended|full)\n)?@case\ndef (\w+)", file.read_text(), flags=re.MULTILINE)
    )
    for ranks in _ranks(file.stem, place)
]


def test_every_case_is_found() -> None:
    marked = sum(len(re.findall(r"^@case$", file.read_text(), flags=re.MULTILINE)) for file in CASES)
    assert len({(each.values[0], each.values[1]) for each in PARAMETERS}) == marked


@pytest.mark.timeout(1800)  # the first case of a file and a number of ranks waits for all of them
@pytest.mark.parametrize(("file", "name", "ranks"), PARAMETERS)
def test_case(file: str, name: str, ranks: int | str, results: Any) -> None:
    reference = results(file, name, 0)[0]
    assert not isinstance(reference, str), reference
    if reference is None:
        pytest.skip("what it needs is not installed")
    expected = _flat(reference)
    relative, absolute = (0.0, 0.0) if ranks == 1 else (1e-5, 1e-5) if name.endswith("_float32") else (1e-9, 1e-12)
    everyone = results(file, name, ranks)
    for rank, result in enumerate(everyone):
        assert not isinstance(result, str), f"rank {rank}: {result}"
        actual = _flat(result)
        assert actual.keys() == expected.keys()
        for path, value in expected.items():
            assert (actual[path].shape, actual[path].dtype) == (value.shape, value.dtype), path
            if value.dtype.kind == "U":
                assert (actual[path] == value).all(), path
                continue
            np.testing.assert_allclose(actual[path], value, rtol=relative, atol=absolute, err_msg=f"rank {rank} {path}")
    first = _flat(everyone[0])
    for other in everyone[1:]:
        for path, value in _flat(other).items():
            assert value.tobytes() == first[path].tobytes(), f"{path} differs between ranks"
