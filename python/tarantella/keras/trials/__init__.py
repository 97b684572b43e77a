"""Trials of user-defined code on synthetic rows, to find out how its results combine over rows."""
