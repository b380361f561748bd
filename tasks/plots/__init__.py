"""Figures of a campaign, drawn by matplotlib: as PNG for files, and as SVG for the report."""
