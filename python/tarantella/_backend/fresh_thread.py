"""What must not be a part of what this thread does: traces, and calls of Keras's layers, are known for each thread."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any


def in_fresh_thread(function: Callable[[], Any]) -> Any:
    """Runs `function` eagerly, outside of any trace and any call of a layer, and returns or raises what it does."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()
