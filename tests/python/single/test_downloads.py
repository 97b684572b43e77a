"""What the examples download: who does it, and what the ranks do about it."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture
def downloads(beside_examples: None) -> ModuleType:
    import common.downloads

    return common.downloads


def test_one_rank_of_a_node_downloads_and_the_others_wait(
    downloads: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    monkeypatch.setattr(downloads.tnt, "barrier", lambda: happened.append("barrier"))

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
