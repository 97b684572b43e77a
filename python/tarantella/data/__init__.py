"""Splitting the user's global batches into the micro batches of the ranks."""
