"""The pieces of the checks of a configuration. Each returns the value as it is used, or raises InputError."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any

from .errors import InputError

MOST = 2**31 - 1  # what TensorFlow and NumPy take


def known(what: str, given: Any, names: Collection[str]) -> str:
    """Returns the one of `names` that equals `given` in any case. Raises InputError with the nearest one."""
    by_lower = {name.lower(): name for name in names}
    if str(given).lower() in by_lower:
        return by_lower[str(given).lower()]
    near = difflib.get_close_matches(str(given).lower(), by_lower, n=1)
    guess = f"did you mean '{by_lower[near[0]]}'? " if near else ""
    raise InputError(f"{what} '{given}' is unknown; {guess}Known: {', '.join(sorted(names))}")


def known_to_keras(where: str, name: Any, module: Any, more: Collection[str] = ()) -> str:
    """Returns the name, as Keras spells it, of a function or class for which `module.get` needs nothing else."""
    if not isinstance(name, str):
        raise InputError(f"{where} must be a name (got {name!r})")
    if name in more or _gets(module, name):
        return name
    if isinstance(getattr(module, name, None), type):
        raise InputError(f"{where} '{name}' needs arguments, which a configuration does not give: choose another one")
    return known(where, name, [*(each for each in dir(module) if _gets(module, each)), *more])


def _gets(module: Any, name: str) -> bool:
    try:
        module.get(name)
    except (TypeError, ValueError):
        return False
    return True


def require(where: str, given: Mapping[str, Any], keys: Collection[str]) -> None:
    for key in keys:
        if given.get(key) is None:
            raise InputError(f"{f'{where}: ' if where else ''}the key '{key}' is missing")


def check_keys(where: str, given: Mapping[str, Any], keys: Collection[str], required: Collection[str] = ()) -> None:
    for key in given:
        if key not in keys:
            known(f"{f'{where}: ' if where else ''}the key", key, keys)
            raise InputError(f"{where}: write the key '{key}' in lower case")
    require(where, given, required)


def mapping(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a mapping (got {value!r})")
    return value


def as_list(where: str, value: Any, example: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise InputError(f"{where} must be a list, such as {example} (got {value!r})")
    return value or []


def text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{where} must be text, in quotes where YAML reads something else (got {value!r})")
    return value


def truth(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{where} must be true or false (got {value!r})")
    return value


def number(where: str, value: Any, least: float = -math.inf) -> float:
    """Also takes text: YAML reads 1e-4 as text, and 1.0e-4 as a number. Whole numbers stay whole."""
    try:
        result = float(value)
        valid = math.isfinite(result) and not isinstance(value, bool)
    except (OverflowError, TypeError, ValueError):
        valid = False
    if not valid:
        raise InputError(f"{where} must be a number (got {value!r})")
    if result < least:
        raise InputError(f"{where} must be at least {least} (got {value})")
    return value if isinstance(value, int) else result


def whole(where: str, value: Any, least: int = 1, most: int = MOST) -> int:
    result = number(where, value, least)
    if result != int(result):
        raise InputError(f"{where} must be a whole number (got {value})")
    if result > most:
        raise InputError(f"{where} must be at most {most} (got {value})")
    return int(result)


def image_shape(where: str, value: Any) -> list[int]:
    if not isinstance(value, list) or len(value) != 3:
        raise InputError(f"{where} must be [height, width, channels] (got {value})")
    return [whole(where, each, most=2**16) for each in value]
