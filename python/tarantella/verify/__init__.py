"""`tarantella verify`: whether N ranks give what one process gives, shown on the first steps of a script."""
