"""Docstrings of public names: they document each parameter, and their examples run on one rank and on two."""

from __future__ import annotations

import enum
import inspect
from typing import Any

import pytest

EXAMPLES = """
    import doctest, importlib, tarantella as tnt
    modules = ["keras.model", "keras.custom_loops", "keras.step.gather", "keras.callbacks",
               "data.tf_data.dataset"]  # test_collectives.py has the others
    for name in modules:
        found = doctest.testmod(importlib.import_module("tarantella." + name), optionflags=doctest.ELLIPSIS)
        assert found.attempted and not found.failed, (name, found)
    print("all right")
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_examples_run(scripts: Any, ranks: int) -> None:
    ended = scripts.ranks(ranks, EXAMPLES, options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err + ended.out
    assert ended.out.count("all right") == ranks


def _public() -> list[tuple[str, Any]]:
    tnt = pytest.importorskip("tarantella")
    modules = ((tnt, tnt.__all__), (tnt.data, tnt.data.__all__), (tnt.keras.callbacks, tnt.keras.callbacks.__all__))
    named = [(name, getattr(module, name)) for module, names in modules for name in names]
    old = "tarantella.compat"
    return [(name, each) for name, each in named if callable(each) and each.__module__ != old and _is_made(each)]


def _is_made(each: Any) -> bool:
    """Not an enum or an error: these take no parameters of ours."""
    return not (inspect.isclass(each) and issubclass(each, (enum.Enum, BaseException)))


def test_each_parameter_is_documented() -> None:
    names = _public()
    assert len(names) > 25
    missing = []
    for name, each in names:
        sections = inspect.getdoc(each).partition("Args:")[2]
        missing += [f"{name}({p})" for p in inspect.signature(each).parameters if f"    {p}: " not in sections]
    assert missing == []
