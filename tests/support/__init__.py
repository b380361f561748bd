"""Environments, histories, servers and programs that several tests use."""
