"""Verbs that show campaigns: status, watch, logs."""
