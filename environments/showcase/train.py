"""Q-learning in a table, on a lake of 16 fields. Plain Python; a run takes a second, most of it waiting."""

import json
import pathlib
import random
import sys
import time

import lake

REPORTS, EPISODES = 20, 100
PAUSE = 0.04  # seconds before a report: the lake is as slow as a simulator, so that there is time to stop a run early
CANCELLED = 42
INITIAL = 0.0

config = json.loads(pathlib.Path("config.json").read_text())
params, out, draw = config["params"], pathlib.Path(config["out"]), random.Random(config["seed"])
values = [[INITIAL] * lake.ACTIONS for _ in range(lake.FIELDS)]


def greedy(field: int) -> int:
    """The action of the highest value; the first of several."""
    return values[field].index(max(values[field]))


def learn(steps: int, rate: float) -> None:
    """Play on, and move each value towards its reward and the value of what follows."""
    field = 0
    for _ in range(steps):
        explores = draw.random() < params["exploration"]
        action = draw.randrange(lake.ACTIONS) if explores else greedy(field)
        there, reward, over = lake.step(field, action, draw)
        target = reward if over else reward + params["discount"] * max(values[there])
        values[field][action] += rate * (target - values[field][action])
        field = 0 if over else there


def save() -> None:
    (out / "values.json").write_text(json.dumps(values))


def main() -> None:
    steps = config["budget_steps"] // REPORTS
    with (out / "progress.jsonl").open("w", buffering=1) as progress:
        print('{"ready": true}', file=progress)
        began = time.monotonic()
        for report in range(1, 2 if "--check" in sys.argv else REPORTS + 1):
            learn(steps, params["learning_rate"])
            save()
            time.sleep(PAUSE)
            policy = [greedy(field) for field in range(lake.FIELDS)]
            success = sum(lake.play(policy, draw) for _ in range(EPISODES)) / EPISODES
            line = {"elapsed": time.monotonic() - began, "step": report * steps, "metrics": {"success": success}}
            print(json.dumps(line), file=progress)
            if pathlib.Path("cancel").exists():
                sys.exit(CANCELLED)


main()
