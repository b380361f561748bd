"""What a campaign spent."""
