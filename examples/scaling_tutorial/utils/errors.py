"""The error that ends the script with one sentence."""

from __future__ import annotations


class ConfigError(ValueError):
    """The configuration is wrong, or the data that it names. The message is one sentence for the user."""
