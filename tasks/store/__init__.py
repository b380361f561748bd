"""A campaign's directory on disk: what is written there, and how it is read back."""
