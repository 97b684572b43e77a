"""A snapshot is whole, or the one before is: whenever its writer is killed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarantella.keras.callbacks import Snapshot
from tarantella.keras.snapshots import state
from tarantella.keras.snapshots.store import Content, Folder, Memory, parse


def content(number: int) -> Content:
    return Content({"sequence": number}, {"a": np.full(100, number), "b": np.zeros((2, 3), np.float16)})


def numbers_of(raw: bytes | None) -> Any:
    if raw is None:
        return None
    found = parse(raw)
    assert (found.arrays["a"] == found.text["sequence"]).all() and found.arrays["b"].dtype == np.float16
    return found.text["sequence"]


@pytest.fixture
def files(monkeypatch: Any) -> Any:
    """The descriptors that a launcher leaves."""
    made = [os.memfd_create("tarantella-snapshot", 0) for _ in range(2)]
    monkeypatch.setenv("TNT_SNAPSHOT_FDS", ",".join(map(str, made)))
    yield made
    for each in made:
        os.close(each)


def test_memory_has_the_newer_of_two(files: Any) -> None:
    memory = Memory.inherited()
    assert memory is not None and memory.read() is None
    for number in (1, 2, 3):
        memory.write(content(number))
        assert numbers_of(Memory.inherited().read()) == number  # type: ignore[union-attr]
    again = Memory.inherited()
    assert again is not None and numbers_of(again.read()) == 3
    again.write(content(4))  # in the place of 2
    size = max(os.fstat(each).st_size for each in files)
    newest = next(each for each in files if b'"sequence": 4' in os.pread(each, size, 0))
    for length in (size - 1, size // 2, 10, 0):
        os.ftruncate(newest, length)
        assert numbers_of(Memory.inherited().read()) == 3  # type: ignore[union-attr]


def test_no_memory_but_the_launchers(files: Any, monkeypatch: Any) -> None:
    other = os.memfd_create("another", 0)
    monkeypatch.setenv("TNT_SNAPSHOT_FDS", f"{files[0]},{other}")
    assert Memory.inherited() is None
    os.close(other)
    monkeypatch.setenv("TNT_SNAPSHOT_FDS", f"{files[0]},{other}")
    assert Memory.inherited() is None
    monkeypatch.delenv("TNT_SNAPSHOT_FDS")
    assert Memory.inherited() is None


def test_a_folder_keeps_the_earlier_one_where_writing_fails(tmp_path: Path, monkeypatch: Any) -> None:
    store = Folder(str(tmp_path / "new"))
    assert store.read() is None
    store.write(content(1))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.write(content(2))
    assert numbers_of(store.read()) == 1
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["snapshot.npz"]


@settings(max_examples=200, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_changed_byte_is_refused_or_harmless(place: float, flip: int, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("snapshots")
    store = Folder(str(folder))
    store.write(content(1))
    path = folder / "snapshot.npz"
    raw = bytearray(path.read_bytes())
    raw[int(place * len(raw))] ^= flip
    path.write_bytes(raw)
    with contextlib.suppress(ValueError):
        assert numbers_of(store.read()) == 1


@pytest.mark.parametrize("options", [{"every": 0}, {"every": True}, {"every": 1.5}])
def test_a_bad_number_of_steps(options: Any) -> None:
    with pytest.raises(ValueError, match="Snapshot needs a number of steps"):
        Snapshot(**options)


@pytest.mark.parametrize("options", [{"time_limit": 5}, {"time_limit": 0, "folder": "f"}])
def test_a_bad_time_limit(options: Any) -> None:
    with pytest.raises(ValueError, match="needs a folder, and seconds above 0"):
        Snapshot(every=1, **options)


def test_a_snapshot_names_no_function_but_operations_of_keras() -> None:
    encoded = state._encoded(keras.ops.less, "monitor", {})
    assert state.decoded(encoded, {}) is keras.ops.less
    for function in (os.getpid, content, keras.losses.huber):
        with pytest.raises(TypeError, match="monitor has a "):
            state._encoded(function, "monitor", {})
    for name in ("system", "nothing"):
        with pytest.raises(AttributeError):
            state.decoded({"operation": name}, {})
