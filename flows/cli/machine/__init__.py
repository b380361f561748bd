"""Verbs about this machine: up, down, doctor, prune, sync."""
