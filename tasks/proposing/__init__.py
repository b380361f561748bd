"""Briefs for proposers, and the checks of a proposal before it becomes a trial."""
