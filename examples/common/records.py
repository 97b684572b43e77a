"""TFRecord files: those of the newest version, all of them, and their records without reading what is in them."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from .errors import InputError

HEADER, FOOTER = 12, 4  # bytes around a record: its length with a checksum, and a checksum of its data
NAMED = 3


def find_shards(folder: Path, patterns: Iterable[str], first: int = 0) -> list[Path]:
    """Returns the files `…-00000-of-00002` of the first pattern that fits some; [] if none does.

    Of folders of several versions, such as 5.0.0 and 5.1.0, the newest counts. first: the number of the first file.

    Raises InputError, which names them, if files are missing or belong to two data sets.
    """
    for pattern in patterns:
        found = [path for path in folder.glob(pattern) if re.search(r"-\d+-of-\d+$", path.name)]
        if found:
            newest = max({path.parent for path in found}, key=_version)
            return _checked(sorted(path for path in found if path.parent == newest), first)
    return []


def _version(folder: Path) -> tuple[list[int], Path]:
    return [int(number) for number in re.findall(r"\d+", folder.name)], folder


def _checked(paths: list[Path], first: int) -> list[Path]:
    name, count = re.findall(r"(.*-)\d+-of-(\d+)$", paths[0].name)[0]
    width = len(count)
    wanted = [paths[0].with_name(f"{name}{first + number:0{width}}-of-{count}") for number in range(int(count))]
    missing = [str(path) for path in wanted if path not in paths]
    if missing:
        raise InputError(f"{listed(missing, f'of {len(wanted):,} files are missing')}; prepare or copy them again")
    others = [str(path) for path in paths if path not in wanted]
    if others:
        raise InputError(f"{listed(others, f'files are not of the {len(wanted):,} beside them')}; remove one set")
    return paths


def listed(names: Sequence[str], what: str) -> str:
    """Counts and says what is wrong, and names the first ones."""
    return f"{len(names):,} {what}: {', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''}"


def record_lengths(path: str | Path) -> tuple[list[int], bool]:
    """Returns the lengths of the records that a file has in full, and whether it ends where a record ends."""
    size, offset, lengths = os.path.getsize(path), 0, []
    with open(path, "rb") as file:
        while offset < size:
            file.seek(offset)
            header = file.read(HEADER)
            length = struct.unpack_from("<Q", header)[0] if len(header) == HEADER else size
            offset += HEADER + length + FOOTER
            if offset > size:
                return lengths, False
            lengths.append(length)
    return lengths, True
