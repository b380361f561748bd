"""Fit a line by gradient descent: stands in for your own training script."""

import argparse
import json
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--steps", type=int)
parser.add_argument("--seed", type=int)
parser.add_argument("--out", type=Path)
args = parser.parse_args()

random.seed(args.seed)
slope, offset = random.uniform(-1, 1), random.uniform(-1, 1)
for _ in range(args.steps):
    x = random.uniform(-1, 1)
    error = slope * x + offset - (3 * x + 2 + random.gauss(0, 0.1))
    slope -= args.lr * 2 * error * x
    offset -= args.lr * 2 * error
(args.out / "model.json").write_text(json.dumps({"slope": slope, "offset": offset}))
