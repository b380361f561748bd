"""Measurements of the figures that Nightshift holds itself to; each module prints one table, none is a test."""
