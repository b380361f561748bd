"""Warm starts: programs are forked from templates, processes that have imported their packages ahead."""
