"""What `tarantella doctor` runs; nothing of it is loaded otherwise."""
