"""`tarantella doctor`: checks the installation and the machine."""
