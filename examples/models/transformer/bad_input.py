"""The error that ends a script with one sentence."""


class BadInput(ValueError):  # noqa: N818  it ends the script like a wrong option
    """The data, the vocabulary, a checkpoint or an option cannot be used. The message is one sentence for the user."""
