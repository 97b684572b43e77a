"""`tarantella scaling`: how much faster a script trains on more ranks, and what limits it."""
