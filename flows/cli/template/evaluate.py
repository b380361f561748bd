"""The judge: mean squared error on points that training never saw. Writes {"score": x} or {"units": [...]}."""

import json
import sys
from pathlib import Path

out, result = Path(sys.argv[1]), Path(sys.argv[2])
model = json.loads((out / "model.json").read_text())
points = [i / 50 - 1 for i in range(101)]
units = [(model["slope"] * x + model["offset"] - (3 * x + 2)) ** 2 for x in points]
result.write_text(json.dumps({"units": units}))
