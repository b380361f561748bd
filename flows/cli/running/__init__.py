"""Verbs that run trials: run, resume, stop, rerun, try."""
