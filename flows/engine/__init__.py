"""How a campaign's trials are chosen, run, decided and recovered."""
