"""User-defined code tried out on made-up rows, to learn how it combines over rows."""
