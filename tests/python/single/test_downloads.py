"""What the examples download: who does it, and what the ranks do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def downloads() -> Iterator[ModuleType]:
    path = list(sys.path)
    sys.path.insert(0, str(EXAMPLES))
    import common.downloads

    yield common.downloads
    sys.path[:] = path
    for name in [name for name in sys.modules if name.split(".")[0] == "common"]:
        del sys.modules[name]


def test_one_rank_of_a_node_downloads_and_the_others_wait(
    downloads: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    class Barrier:
        def execute(self) -> None:
            happened.append("barrier")

    monkeypatch.setattr(downloads.tnt, "Barrier", Barrier)

    def steps(rank: int, local_rank: int) -> list[str]:
        monkeypatch.setattr(downloads.tnt, "is_master_rank", lambda: rank == 0)
        monkeypatch.setattr(downloads.tnt, "get_local_rank", lambda: local_rank)
        happened.clear()
        downloads.download_once(lambda: happened.append("fetch"))
        return list(happened)

    assert steps(0, 0) == ["fetch", "barrier", "barrier"]
    assert steps(2, 0) == ["barrier", "fetch", "barrier"]  # the first of another node
    assert steps(3, 1) == ["barrier", "barrier"]


def test_one_process_needs_no_launcher(downloads: ModuleType) -> None:
    fetched: list[int] = []
    downloads.download_once(lambda: fetched.append(1))
    assert fetched == [1]
    assert (downloads.on_all_ranks(True), downloads.on_all_ranks(False)) == (True, False)
