"""`nightshift doctor`: whether this machine is ready for a campaign."""
