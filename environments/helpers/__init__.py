"""Files that recipes share: one that `[prepare] helpers` names lies beside the program, and is part of the hash.

They import nothing of ours: a recipe runs in a sandbox without Nightshift.
"""
