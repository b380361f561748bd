"""A published headline of another project, repeated: its facts, its problem here, the commands, and the statistics."""
