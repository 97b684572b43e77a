"""`tarantella.run`: a function on several ranks, started from Python. Nothing of it is loaded otherwise."""
