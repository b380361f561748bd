"""The operating system: processes, files, clocks, signals, redaction of secrets."""
