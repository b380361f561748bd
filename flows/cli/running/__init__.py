"""Verbs that run trials: run, resume, stop, try."""
