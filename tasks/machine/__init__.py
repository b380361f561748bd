"""GPUs and CPU slots of this machine, and the locks that keep them exclusive."""
