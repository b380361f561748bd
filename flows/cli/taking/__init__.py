"""Verbs that take a champion along: export, upload."""
