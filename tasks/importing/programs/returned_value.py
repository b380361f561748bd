"""The judge of an imported objective: takes the value that it returned. `python judge.py OUT RESULT`.

That value comes from the program that is scored. Where code is edited, measure in this file what training has left in
OUT instead, on data that the program does not read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

out, result = Path(sys.argv[1]), Path(sys.argv[2])
value = json.loads((out / "score.json").read_text())
also = {f"value_{place}": other for place, other in enumerate(value["others"], 2)}
result.write_text(json.dumps({"score": value["score"], "also": also}))
