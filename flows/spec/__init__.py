"""What a campaign is asked to do: its parameters, their checks and its time budget."""
