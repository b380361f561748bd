"""Verbs that compare: calibrate, duel, propose, approve, reject."""
