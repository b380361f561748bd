"""A champion outside of its campaign: a folder that holds it, and predictions by its program in the sandbox."""
