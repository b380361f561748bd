"""The lake: 16 fields of ice, on which one slips. Training and the judge each have their own copy of this file."""

from __future__ import annotations

import random

MAP = "S....H.H...HH..G"
"""Field by field: S is the start, H a hole, G the goal; the lake is four fields wide."""
FIELDS, ACTIONS = len(MAP), 4
SIDE, MOVES = 4, ((0, -1), (1, 0), (0, 1), (-1, 0))
MOST_STEPS = 100


def _to(field: int, action: int) -> int:
    row, column = (at + by for at, by in zip(divmod(field, SIDE), MOVES[action], strict=True))
    return SIDE * min(max(row, 0), SIDE - 1) + min(max(column, 0), SIDE - 1)


NEXT = [[_to(field, action) for action in range(ACTIONS)] for field in range(FIELDS)]


def step(field: int, action: int, draw: random.Random) -> tuple[int, float, bool]:
    """The field where a move ends, its reward, and whether the episode is over. One move in three goes as meant."""
    there = NEXT[field][(action + draw.choice((-1, 0, 1))) % ACTIONS]
    return there, float(MAP[there] == "G"), MAP[there] in "GH"


def play(policy: list[int], draw: random.Random) -> float:
    """The reward of one episode."""
    field = 0
    for _ in range(MOST_STEPS):
        field, reward, over = step(field, policy[field], draw)
        if over:
            return reward
    return 0.0
