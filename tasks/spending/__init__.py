"""Spending: what a campaign paid, what an hour of a machine costs, and what a home's campaigns spent in a month."""
