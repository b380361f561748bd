"""`nightshift list`, `status`, `watch` and `logs`: look at campaigns."""
