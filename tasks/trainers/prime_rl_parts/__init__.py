"""The parts of prime_rl.py: a copy of this folder lies beside train.py in a workspace."""
