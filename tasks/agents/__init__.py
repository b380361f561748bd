"""Coding agents: how they are started, what they are handed, and what they leave."""
