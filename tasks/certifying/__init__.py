"""Certificates: what fresh runs prove, by which design, and what they may share."""
