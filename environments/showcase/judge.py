"""The judge: plays the best action by the table that training left, in episodes that training never sees."""

import json
import pathlib
import random
import sys

import lake

EPISODES = 1000

out, result, seed = sys.argv[1:]
values, draw = json.loads(pathlib.Path(out, "values.json").read_text()), random.Random(seed)
policy = [row.index(max(row)) for row in values]
units = [lake.play(policy, draw) for _ in range(EPISODES)]
pathlib.Path(result).write_text(json.dumps({"units": units}))
