"""The type of floating-point numbers in a run of the user's script."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def choose(keras: Any) -> None:
    """Sets that of the plan, if it has one. Called when the script has just imported Keras."""
    plan = json.loads((Path(os.environ["TNT_VERIFY"]) / "plan.json").read_text())
    if "floatx" in plan:
        keras.config.set_floatx(plan["floatx"])
