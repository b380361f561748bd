"""Trainings on other machines; docs/other-machines.md has the protocol and a reference endpoint."""
