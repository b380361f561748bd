"""`launch = "slurm"`: a run of a trial as a job of Slurm's, which a worker of no pool has to start."""
