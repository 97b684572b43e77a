"""tools/check_map.py: the modules that the map must name, and names that are gone."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import check_map

PAGE = """# Contributing

## The Python package

| file | what happens there |
|---|---|
| `keras/fit.py`, with `step.py` | it begins |

| room | what lives there |
|---|---|
| `_job/` | this process |
| &nbsp; `log.py`, `key.py` | messages; the key |
| `keras/` | |
| &nbsp; `fit.py` | calls |
| &nbsp; `step/` | `step` (one), `run` |
| `horovod/` | its API; `keras/` is a face |

## Next

| `gone.py` | of another chapter |
"""
MODULES = [
    "__init__",
    "_job/__init__",
    "_job/key",
    "_job/log",
    "horovod/keras/callbacks",
    "keras/fit",
    "keras/step/run",
    "keras/step/step",
]


def test_a_map_of_all_modules():
    assert check_map.against_the_tree(PAGE, MODULES) == []


def test_modules_that_are_not_on_the_map():
    new = ["_job/report", "keras/step/losses", "keras/step", "horovod/ops"]
    found = check_map.against_the_tree(PAGE, [*MODULES, *new])
    assert [line.split("has not ")[1].split(":")[0] for line in found] == [
        "_job/report.py",
        "horovod/ops.py",
        "keras/step.py",
        "keras/step/losses.py",
    ]


def test_places_that_are_gone():
    found = check_map.against_the_tree(PAGE, [each for each in MODULES if "key" not in each and "step/" not in each])
    assert [line.split("has ")[1].split(",")[0] for line in found] == ["_job/key", "keras/step/"]


def test_sources_that_are_gone():
    page = "`data/slicer.py`, `slicer.py`, `cli/options.cpp`, `old/slicer.py` and `old/slicer.py`, `fit(x)`"
    files = ["python/data/slicer.py", "src/cli/options.cpp"]
    assert check_map.lost_sources(page, files) == ["CONTRIBUTING.md: no source old/slicer.py"]
