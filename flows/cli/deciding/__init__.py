"""Verbs that compare programs and steer a campaign: certify, duel, calibrate, propose, approve, reject."""
