"""Edits of a program: applying them, and checking the source that results."""
