"""Statistics behind the verdicts: the champion estimate, the certificate, checks of runs."""
