"""What people see of a campaign: terminal, live view, Prefect artifacts."""
