"""Programs that are started ahead: each waits in a sandbox of its own, with its packages imported, for one trial."""
