"""What ranks of another machine do about a file that the master has written."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from tarantella._job import log, shared_files
from tarantella._job.launch_environment import Layout


@pytest.fixture(autouse=True)
def far(monkeypatch):
    """This process is rank 2, the first of the second machine."""
    monkeypatch.setattr(shared_files, "layout", lambda: Layout(2, 4, 0, 2, "job", True, (2, 2)))
    monkeypatch.setattr(shared_files, "SEEN_WITHIN", 0.3)
    monkeypatch.setattr(shared_files, "_not_shared", set())
    monkeypatch.setattr(log, "_logged", set())


def test_a_file_that_comes_late_is_awaited(tmp_path, caplog):
    path = tmp_path / "model.keras"
    writer = threading.Timer(0.1, path.touch)
    writer.start()
    shared_files.await_file(path)
    assert path.exists()
    writer.join()
    assert caplog.text == ""


def test_a_folder_that_is_not_shared_is_named_once_and_not_awaited_again(tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger=log.logger.name)
    log.logger.propagate = True
    shared_files.await_file(tmp_path / "a.keras")
    assert "rank 2 does not see" in caplog.text and "a folder that all machines share" in caplog.text
    began = time.monotonic()
    shared_files.await_file(str(tmp_path / "b.keras"))
    assert time.monotonic() - began < 0.25


def test_the_masters_machine_and_addresses_are_not_awaited(tmp_path, monkeypatch):
    shared_files.await_file("gs://bucket/model.keras")
    monkeypatch.setattr(shared_files, "layout", lambda: Layout(1, 4, 1, 2, "job", True, (2, 2)))
    shared_files.await_file(tmp_path / "none.keras")
    assert not shared_files._not_shared
