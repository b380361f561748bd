"""What people see of a champion beside the baseline: an episode, or answers to questions. It measures nothing."""
