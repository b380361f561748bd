"""Spending limits of a campaign, and what its status says of them."""
