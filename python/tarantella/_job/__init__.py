"""This process as part of its job: settings, start and end, groups, errors and messages."""
