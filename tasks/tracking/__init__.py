"""MLflow: `sync` (sync.py) makes it show a campaign's folder; background.py calls it while the campaign runs."""
