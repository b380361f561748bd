"""Taking a champion along: a folder that trains and judges it again, and a branch of one's own repository."""
