"""MLflow: runs of campaigns and trials, traces, the model registry and the outbox."""
