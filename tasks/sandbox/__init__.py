"""Running an untrusted program: isolation levels, limits, its supervisor and its output."""
