"""`tarantella verify`: compares the first steps of a script on N ranks with those on one process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def choose_floatx(keras: Any) -> None:
    """Sets Keras's default float type, if the plan has one. Called when the script has just imported Keras."""
    plan = json.loads((Path(os.environ["TNT_VERIFY"]) / "plan.json").read_text())
    if "floatx" in plan:
        keras.config.set_floatx(plan["floatx"])
