"""The error that ends an example with one sentence."""

from __future__ import annotations


class InputError(ValueError):
    """Data, an option, a configuration or a checkpoint cannot be used. The message is one sentence for the user."""
