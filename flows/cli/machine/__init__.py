"""Verbs for the machine: up, down, prune, sync."""
