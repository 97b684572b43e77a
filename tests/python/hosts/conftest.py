"""Several hosts on this machine, made once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def hosts(all_hosts, tmp_path: Path) -> Iterator:
    all_hosts.use(tmp_path)
    yield all_hosts
    all_hosts.mend()
    assert all_hosts.end_all() == [], "the job left processes behind"
    records = [*tmp_path.glob("tarantella/*")]
    assert records == [], "the job left its records behind"
