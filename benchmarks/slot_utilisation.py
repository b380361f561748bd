"""What a slot's time is used for, and where the time between two trainings goes.

    python -m benchmarks.slot_utilisation [--environment sleeper] [--budget 2] [--trials 8] [--rule greedy] [--json]

A real campaign through the real engine, at a Prefect server of its own that a short campaign has warmed up, recorded
by MLflow (sqlite). The baseline's trial counts nowhere: it is one of the warm-up's kind. `sleeper` is a program that
sleeps through its budget, so that what it measures is the engine; an installed environment trains.

share/...   of the time from the end of the baseline to that of the last trial: training, start-up of the programs,
            judging (with controls), and idle, which is all else
gap_ms      from the end of a training's program to the start of the next one's, less judging and controls: what a slot
            waits for the engine
gap_ms/...  its parts, each from the end of the task before to its own: `train` is that of the task around the program
judge_ms    the tasks `evaluate` and `untrained` of a trial
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.server import server_process
from flows.views.follow import CampaignWatch

FOREIGN = ("PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI")  # ways to somebody's real servers
NAME, WARM_UP = "measured", "warm-up"
SLEEPER = {
    "train.py": """
        import sys, time
        open(sys.argv[1] + "/checkpoint", "w").close()
        with open(sys.argv[1] + "/progress.jsonl", "w") as file:
            file.write('{"ready": true}\\n')
        time.sleep(3600)
        """,
    "evaluate.py": "import sys\nwith open(sys.argv[1], 'w') as file:\n    file.write('{\"score\": 0}')\n",
    "environment.toml": """
        metric = "score"
        direction = "maximize"
        trainer = "command"
        program = ["train.py"]
        train_cmd = "python train.py {out}"
        judge = "command"
        command.eval_cmd = "python evaluate.py {result}"
        space.x = { type = "float", low = 0.0, high = 1.0, default = 0.5 }
        """,
}
Figures = dict[str, Any]


@dataclass
class Tasks:
    """The ends of tasks, in their order."""

    ended: list[tuple[str, float]] = field(default_factory=list)

    def attach(self) -> None:
        from tasks import decide, evaluate, propose, train, untrained_control

        every = (
            propose.propose, train.train, evaluate.evaluate, untrained_control.untrained, decide.decide,
        )  # fmt: skip
        for task in every:
            task.task.on_completion(self._completed)

    def _completed(self, task: Any, task_run: object, state: object) -> None:
        self.ended.append((task.name, time.perf_counter()))


def main() -> None:
    parser = argparse.ArgumentParser(description="What a slot's time is used for.")
    parser.add_argument("--environment", default="sleeper", help="what is trained (sleeper)")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of a training (2)")
    parser.add_argument("--trials", type=int, default=8, help="trials after the baseline (8)")
    parser.add_argument("--rule", default="greedy", help="the rule (greedy: no reruns and no certificate)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.trials < 2:
        parser.error(f"--trials must be at least 2, to have a gap between two, got {options.trials}")
    figures = measure(options.environment, options.budget, options.trials, options.rule)
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def measure(environment: str, budget: float, trials: int, rule: str) -> Figures:
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as folder:
        home = Path(folder, "home")
        for name in FOREIGN:
            os.environ.pop(name, None)
        os.environ["NIGHTSHIFT_HOME"] = str(home)
        server_process.settle_in(home)
        about, environment = environment, sleeper(Path(folder)) if environment == "sleeper" else environment
        with server_process.prefect_server(None, home):
            tasks = Tasks()
            tasks.attach()
            run(environment, WARM_UP, min(budget, 1.0), 1, rule)
            tasks.ended.clear()
            run(environment, NAME, budget, trials, rule)
            figures = summary(home / NAME, tasks.ended, trials)
    load = os.getloadavg()[0]
    about = f"{about}, {budget:g} s, {trials} trials, {os.cpu_count()} cores, load {load:.1f}"
    return {"about": f"{about}, {time.strftime('%Y-%m-%d %H:%M')}", **figures}


def sleeper(folder: Path) -> str:
    """An environment whose program only sleeps."""
    place = folder / "sleeper"
    place.mkdir()
    for name, content in SLEEPER.items():
        (place / name).write_text(textwrap.dedent(content))
    return str(place)


def run(environment: str, name: str, budget: float, trials: int, rule: str) -> None:
    from flows.campaign import campaign
    from flows.spec.spec import Advanced

    settings: dict[str, Any] = {"budget_seconds": budget}
    if environment == "cartpole":
        settings["budget_steps"] = 100_000_000  # its own budget of steps would end it earlier
    with CampaignWatch(name, Console(quiet=True)):
        end = campaign(
            environment, name, rule=rule, trials=trials, seed=0, cancel="none", advanced=Advanced(overrides=settings),
            return_state=True,
        )  # fmt: skip
    if not end.is_completed():
        raise RuntimeError(f"{name}: {end!r}")


def summary(campaign: Path, ended: Sequence[tuple[str, float]], trials: int) -> Figures:
    first = next(place for place, (name, _) in enumerate(ended) if name == "decide")
    runs = [
        json.loads((campaign / f"trials/{number:04d}/trial.json").read_text())["runs"][0]
        for number in range(1, trials + 1)
    ]
    walls, steps = iter(runs), list[tuple[str, float]]()
    for (_, before), (name, after) in zip(ended[first:], ended[first + 1 :], strict=False):
        program = next(walls)["wall_seconds"] if name == "train" else 0.0
        steps.append((name, after - before - program))
    total = ended[-1][1] - ended[first][1]
    training = sum(one["seconds"] for one in runs)
    starting = sum(one["wall_seconds"] - one["seconds"] for one in runs)
    judging = sum(seconds for name, seconds in steps if name in ("evaluate", "untrained"))
    parts = {"training": training, "start-up": starting, "judging": judging}
    parts["idle"] = total - sum(parts.values())
    own = [(name, seconds) for name, seconds in steps if name not in ("evaluate", "untrained")]
    each = {name: [seconds for other, seconds in own if other == name] for name in dict.fromkeys(n for n, _ in own)}
    return {
        "shares": {name: round(seconds / total, 4) for name, seconds in parts.items()},
        "gap_ms": round(sum(seconds for _, seconds in own) / trials * 1e3),
        **{f"gap_ms/{name}": round(statistics.median(times) * 1e3) for name, times in each.items()},
        "judge_ms": round(judging / trials * 1e3),
        "start_ms": round(starting / trials * 1e3),
    }


def show(figures: Figures) -> None:
    table = Table("", "", title=figures.pop("about"))
    shares = {f"share/{name}": f"{share:.1%}" for name, share in figures.pop("shares").items()}
    for name, value in (shares | figures).items():
        table.add_row(name, str(value))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
