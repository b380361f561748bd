#!/usr/bin/env bash
# Trains and judges this champion once more under a fresh seed, and says whether its score is as expected.
# Exit code: 0 as expected, 1 not, 2 nothing to compare with. Options go to `nightshift try`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
nightshift try ./environment --json "$@" > reproduced.json || { cat reproduced.json; exit 1; }
python3 - <<'END'
import json, sys

expected, run = json.load(open("result.json"))["expected"], json.load(open("reproduced.json"))
print(f"{run['metric']} = {run['score']:.6g}, see {run['directory']}")
if expected is None:
    print("one score is known from the campaign, so no interval")
    sys.exit(2)
inside = expected["low"] <= run["score"] <= expected["high"]
print(f"expected {expected['low']:.6g} to {expected['high']:.6g}: {'inside' if inside else 'OUTSIDE'}")
sys.exit(not inside)
END
