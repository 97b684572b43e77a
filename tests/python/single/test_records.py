"""The TFRecord files of the examples: which ones are read, and which records they have."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def records(beside_examples: None) -> ModuleType:
    import common.records

    return common.records


def touch(folder: Path, *names: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return [folder / name for name in names]


def test_the_files_of_the_newest_version_are_found(records: ModuleType, tmp_path: Path) -> None:
    for version in ("5.0.0", "5.9.0"):
        touch(tmp_path / version, "a-00000-of-00001")
    newest = touch(tmp_path / "5.10.0", "a-00000-of-00002", "a-00001-of-00002", "a-00000-of-00002.old")
    assert records.find_shards(tmp_path, ["b-*-of-*", "*/a-*-of-*"]) == newest[:2]
    assert records.find_shards(tmp_path, ["a-*-of-*"]) == []
    here = touch(tmp_path, "a-00000-of-00001")
    assert records.find_shards(tmp_path, ["a-*-of-*", "*/a-*-of-*"]) == here


def test_files_that_are_missing_or_of_two_sets_are_named(records: ModuleType, tmp_path: Path) -> None:
    def says(**options: int) -> str:
        with pytest.raises(sys.modules["common.errors"].InputError) as error:
            records.find_shards(tmp_path, ["a-*-of-*"], **options)
        return str(error.value)

    touch(tmp_path, "a-00001-of-00003", "a-00003-of-00003")
    assert says(first=1) == f"1 of 3 files are missing: {tmp_path}/a-00002-of-00003; prepare or copy them again"
    touch(tmp_path, "a-00002-of-00003")
    assert len(records.find_shards(tmp_path, ["a-*-of-*"], first=1)) == 3
    assert says().startswith(f"1 of 3 files are missing: {tmp_path}/a-00000-of-00003;")
    touch(tmp_path, "a-00001-of-00002", "a-00002-of-00002")
    assert says(first=1) == (
        f"3 files are not of the 2 beside them: {tmp_path}/a-00001-of-00003, {tmp_path}/a-00002-of-00003, "
        f"{tmp_path}/a-00003-of-00003; remove one set"
    )


def test_the_records_of_a_file_are_counted_to_where_it_ends(records: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "records"
    whole = b"".join(struct.pack("<Q", length) + bytes(4 + length + 4) for length in (0, 5, 9000, 3))
    for content, lengths, ends_well in (
        (b"", [], True),
        (whole, [0, 5, 9000, 3], True),
        (whole[:-1], [0, 5, 9000], False),
        (whole + b"12345", [0, 5, 9000, 3], False),
        (struct.pack("<Q", 2**63) + bytes(8), [], False),
    ):
        path.write_bytes(content)
        assert records.record_lengths(path) == (lengths, ends_well)
