"""`tarantella scaling`: the speed-up of a script on more ranks, and what limits it."""
