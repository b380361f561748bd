"""Foreign text, read by a confined process of its own."""
