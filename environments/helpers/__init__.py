"""Files that recipes share: one that `[prepare] helpers` names lies beside the program, and is part of the hash.

They import nothing of ours: a recipe runs behind walls, where Nightshift is not.
"""
