"""The key by which ranks of other starters know one another."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tarantella._job.rendezvous import secret_name


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TNT_KEY_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path / "settings" / "tarantella" / "key"


def test_it_is_made_once_by_many_ranks(file: Path) -> None:
    names: list[str] = []
    ranks = [threading.Thread(target=lambda: names.append(secret_name("srun 4711.0"))) for _ in range(16)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    assert len(names) == 16 and len(set(names)) == 1
    assert [each.name for each in file.parent.iterdir()] == ["key"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert secret_name("srun 4711.1") != names[0]


def test_another_key_gives_other_names(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = secret_name("job")
    other = tmp_path / "other"
    other.write_bytes(bytes(range(20)))
    other.chmod(0o600)
    monkeypatch.setenv("TNT_KEY_FILE", str(other))
    assert secret_name("job") != mine
    monkeypatch.delenv("TNT_KEY_FILE")
    assert secret_name("job") == mine


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"x" * 32, 0o640, "others may read the key of your jobs"),
        (b"short", 0o600, "has 5 bytes, and needs 16 to 32; remove it"),
    ],
)
def test_a_bad_key_is_refused(file: Path, content: bytes, mode: int, said: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    file.chmod(mode)
    with pytest.raises(RuntimeError, match=said):
        secret_name("job")


def test_a_fifo_is_refused_and_not_waited_for(file: Path) -> None:
    file.parent.mkdir(parents=True)
    os.mkfifo(file, 0o600)
    with pytest.raises(RuntimeError, match="is no regular file"):
        secret_name("job")


def test_a_folder_that_is_no_folder(file: Path) -> None:
    Path(os.environ["XDG_CONFIG_HOME"]).write_text("")
    with pytest.raises(RuntimeError, match=r"cannot read or make the key of your jobs: .*; set TNT_KEY_FILE to a file"):
        secret_name("job")
