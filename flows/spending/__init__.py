"""Spending limits of a campaign: what the next trial may cost, and whether the budget and the month allow it."""
