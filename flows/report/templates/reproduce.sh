#!/usr/bin/env bash
# Trains and judges this champion once more under a fresh seed, and says whether its score is as expected.
#
#   bash reproduce.sh [OPTIONS]     options go to `nightshift try`, such as --seed 7 or --trust
#
# Exit code: 0 the score lies in the expected interval; 1 it does not, or there is no score; 2 nothing to compare with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
environment={{ quote(folder) }}
made_with={{ quote(version) }}

if ! command -v nightshift > /dev/null; then
  echo "reproduce.sh: the command nightshift is not on the PATH: activate the environment that it is installed in" >&2
  exit 1
fi
installed=$(nightshift --version)
if [ "$installed" != "$made_with" ]; then
  echo "made with Nightshift $made_with, here is $installed: judges of other versions may score differently" >&2
fi
{% if executable %}
# A download from a model hub loses these permissions.
{% for file in executable %}
chmod +x {{ quote(file) }}
{% endfor %}
{% endif %}
echo {{ quote("training " ~ problem.name ~ " for " ~ "%g" % problem.budget_seconds ~ " s, then judging it") }} >&2
if ! nightshift try "./$environment" --json "$@" > reproduced.json; then
  cat reproduced.json
  echo "no score: see above" >&2
  exit 1
fi
python3 - <<'END'
import json, sys

result, run = json.load(open("result.json")), json.load(open("reproduced.json"))
score, expected = run["score"], result["expected"]
print(f"{run['environment']}: {run['metric']} = {score:.6g}, files in {run['directory']}")
if expected is None:
    print("nothing to compare with: one score is known from the campaign")
    sys.exit(2)
low, high = expected["low"], expected["high"]
place = "inside" if low <= score <= high else "BELOW" if score < low else "ABOVE"
print(f"expected {low:.6g} to {high:.6g} ({result['direction']}): {place}")
sys.exit(place != "inside")
END
