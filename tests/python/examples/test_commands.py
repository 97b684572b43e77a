"""Every page about the examples has a module that runs its commands, and no command hides from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import PAGES, ROOT, commands_of

COMMAND = re.compile(r"(?:\w+=\S+ )?(?:python|tarantella|sbatch|bash|tensorboard|pip|cd|export|\./\S+) (?!.*: )|\$\w+ ")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_module_runs_the_commands_of_a_page(page: Path) -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    (module,) = [each for each in sources if re.search(rf'Page\(\s*"{name(page)}"', each)]
    assert "assert_all_ran(request)" in module
    assert commands_of(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_with_commands_are_marked(page: Path) -> None:
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.S | re.M)
    assert [
        line for mark, block in blocks if mark != "bash" for line in block.splitlines() if COMMAND.match(line)
    ] == []


def test_a_command_may_have_several_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```\nsaid\n```\n- a\n\n  ```bash\n  # why\n  a --b \\\n    --c\n\n  d\n  ```\n```python\nx\n```\n")
    assert commands_of(page) == ["a --b --c", "d"]
