"""Preparation recipes of environments: run once, checked, and shared by campaigns."""
