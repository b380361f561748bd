"""progress.png, the picture of a campaign."""
