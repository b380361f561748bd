"""`nightshift doctor`: whether this machine is ready for campaigns."""
