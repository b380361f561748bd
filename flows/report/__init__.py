"""The report: one page that says what a campaign found, what it cost, and what to try next."""
