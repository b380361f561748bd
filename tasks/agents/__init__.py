"""Coding agents: how the known ones are started (`settings`), run (`running`), and what they are handed (`folder`)."""
