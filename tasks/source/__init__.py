"""Reading the Python source of programs, to check edits of it (`tasks.edits`)."""
