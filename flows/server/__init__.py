"""Prefect servers: found, started, and told about runs that died."""
