"""What every proposal is checked against before it becomes a trial."""
