"""Programs that are written into imported environments: each imports nothing of ours, and runs in a workspace."""
