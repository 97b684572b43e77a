"""Runs the commands of docs/cluster.md that use several hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

PAGE = (Path(__file__).parents[3] / "docs" / "cluster.md").read_text()
SECTION = PAGE.partition("## Several hosts")[2].partition("\n## ")[0]
COMMANDS = [line for block in re.findall(r"```\n(.*?)```", SECTION, re.DOTALL) for line in block.splitlines()]
MODEL = """
    import tarantella as tnt
    tnt.init()
    open(f"ran{tnt.get_rank()}of{tnt.get_size()}", "w").close()
"""


def test_the_commands_of_several_hosts(hosts):
    hosts.script(MODEL, "model.py")
    assert len(COMMANDS) == 5
    for command in COMMANDS:
        job = hosts.run("bash", "-c", command, timeout=60)
        assert job.code == 0, job.err
        size = 3 if "-n 3" in command else 4
        trains = "model.py" in command and "--dry-run" not in command
        ran = sorted(each.name for each in hosts.folder.glob("ran*"))
        assert ran == ([f"ran{rank}of{size}" for rank in range(size)] if trains else [])
        for name in ran:
            (hosts.folder / name).unlink()
