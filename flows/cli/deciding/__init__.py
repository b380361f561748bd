"""Verbs that compare and decide: certify, calibrate, duel, propose, approve, reject."""
