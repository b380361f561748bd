"""`nightshift env`: list, make, check and prepare environments."""
