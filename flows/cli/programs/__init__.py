"""Programs that a user's own Python runs for `compare`; they import nothing of ours."""
