"""What the demo finds: real campaigns, each with its own seed, whose champions are then trained again.

    python -m benchmarks.demos [--demos 20] [--trials 8] [--fresh 2] [--parallel N]
        [--environment lunar_lander] [--nothing] [--store FILE] [--json]

A demo is what `make demo` runs, `nightshift run lunar_lander --trials 8 --parallel 2 --seed N` (1 on one core), in a
home of its own, server and MLflow and all. Its gain is that of the search: the champion's score less the baseline's.
Being the best of several, that is flattered by luck; so every champion is then trained and judged again, with seeds
that no campaign has used, and its *true* gain is the mean of those runs less the mean of all the demos' baselines. A
gain is called visible from 100 points on. What ships is the champion where it is certified, else the baseline.

With `--nothing` there is nothing to find: the space is the bound of the gradient's norm alone, between values that no
gradient reaches. With `--store` each demo is added to a file as it ends, and seeds that stand there are not run again:
twenty demos take hours, and may be done in parts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import tomlkit
from pydantic import TypeAdapter

import environments
from benchmarks.campaigns import FRESH_SEEDS, CommandFailed, campaign, nightshift
from benchmarks.tables import about, show

VISIBLE = 100.0


@dataclass(frozen=True)
class Demo:
    """One demo: scores in the environment's metric, time in seconds."""

    seed: int
    baseline: float
    champion: float
    trial: int
    """The champion's number; 0 when nothing beat the baseline."""
    certified: float | None
    """The gain of its certificate, where it passed."""
    shipped: int | None
    """The trial that ships; 0 when it is the baseline, None when nothing does."""
    fresh: Sequence[float]
    """The champion's program and parameters again, with other seeds."""
    seconds: float
    """Wall time of the whole command, the server's start included."""

    @property
    def gain(self) -> float:
        return self.champion - self.baseline


READER = TypeAdapter(Demo)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the demo finds, again and again.")
    parser.add_argument("--demos", type=int, default=20)
    parser.add_argument("--trials", type=int, default=8, help="search trials of each demo (8)")
    parser.add_argument("--fresh", type=int, default=2, help="fresh runs of each champion (2)")
    cores = min(len(os.sched_getaffinity(0)), 2)
    parser.add_argument("--parallel", type=int, default=cores, help=f"trials of a demo side by side ({cores} here)")
    parser.add_argument("--environment", default="lunar_lander")
    parser.add_argument("--nothing", action="store_true", help="search where nothing makes a difference")
    parser.add_argument("--store", type=Path, help="file of the demos that have ended, a line of JSON each")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    store: Path | None = options.store
    lines = store.read_text().splitlines() if store and store.exists() else []
    ended = {found.seed: found for found in (READER.validate_json(line) for line in lines)}
    with tempfile.TemporaryDirectory(prefix="nightshift-nothing-") as folder:
        searched = nothing_to_find(options.environment, Path(folder)) if options.nothing else options.environment

        for seed in range(1, options.demos + 1):
            if seed not in ended:
                ended[seed] = demo(searched, options.trials, options.fresh, seed, options.parallel)
                if store:
                    with store.open("a") as file:
                        file.write(json.dumps(asdict(ended[seed])) + "\n")
    demos = [ended[seed] for seed in range(1, options.demos + 1)]
    title = about(f"{len(demos)} demos")
    if options.json:
        document = {"about": title, "summary": summary(demos), "demos": [asdict(each) for each in demos]}
        print(json.dumps(document, indent=2))
    else:
        print_tables(title, demos)


def nothing_to_find(name: str, folder: Path) -> str:
    """A copy of an environment of `ppo` whose only parameter makes no difference, in a folder; its path."""
    found = environments.find(name)
    document = tomlkit.parse((found / "environment.toml").read_text()).unwrap()
    fixed = {key: value["default"] for key, value in document["space"].items()} | document["fixed"]
    never_reached = {"type": "float", "low": 1e6, "high": 2e6, "default": 1e6}
    # Without normalised rewards the baseline needs the bound.
    document |= {"space": {"max_grad_norm": never_reached}, "fixed": fixed | {"normalize_rewards": True}}
    place = folder / f"{name}_nothing"
    place.mkdir()
    (place / "environment.toml").write_text(tomlkit.dumps(document))
    (place / "program.md").write_text((found / "program.md").read_text())
    return str(place)


def demo(environment: str, trials: int, fresh: int, seed: int, parallel: int) -> Demo:
    """One demo from its first to its last second, and its champion's fresh runs."""
    with tempfile.TemporaryDirectory(prefix="nightshift-demo-") as home:
        began = time.monotonic()
        counts = ("--trials", str(trials), "--parallel", str(parallel), "--seed", str(seed))
        found = campaign(home, environment, *counts)
        seconds = time.monotonic() - began
        baseline, champion, proof = found["baseline"], found["champion"], found["certificate"]
        if champion is None or baseline["score"] is None:
            raise CommandFailed(f"demo {seed} of {environment}: {found['reason']}")
        seeds = [str(FRESH_SEEDS + 100 * seed + number) for number in range(fresh)]
        again = ("try", "--in", found["campaign"], "--trust", "--params", json.dumps(champion["params"]))
        with ThreadPoolExecutor(parallel) as pool:
            scores = list(pool.map(lambda other: nightshift(home, *again, "--seed", other, "--json")["score"], seeds))
    return Demo(
        seed,
        baseline["score"],
        champion["score"],
        champion["trial"],
        proof["gain"] if proof and proof["passed"] else None,
        found["shipped_trial"],
        tuple(score for score in scores if score is not None),  # a crash has none
        seconds,
    )


def summary(demos: Sequence[Demo]) -> dict[str, float]:
    ordinary = statistics.fmean(each.baseline for each in demos)
    figures = {
        "demos": len(demos),
        "baseline/mean": ordinary,
        "baseline/sd": statistics.stdev(each.baseline for each in demos) if len(demos) > 1 else 0.0,
        "gain/median": statistics.median(each.gain for each in demos),
        "certified": sum(each.certified is not None for each in demos),
        "shipped/not_baseline": sum(bool(each.shipped) for each in demos),
        "minutes/median": statistics.median(each.seconds for each in demos) / 60,
        "minutes/max": max(each.seconds for each in demos) / 60,
    }
    passed = [each for each in demos if each.certified is not None]
    if passed:
        figures["certified_gain/median"] = statistics.median(each.certified or 0.0 for each in passed)
    for name, some in {"true_gain": demos, "certified/true_gain": passed}.items():
        if true := [statistics.fmean(each.fresh) - ordinary for each in some if each.fresh]:
            figures |= {
                f"{name}/visible": sum(gain >= VISIBLE for gain in true),
                f"{name}/median": statistics.median(true),
                f"{name}/min": min(true),
            }
    return figures


def print_tables(title: str, demos: Sequence[Demo]) -> None:
    rows = [
        (
            each.seed, f"{each.baseline:.0f}", f"{each.champion:.0f} (trial {each.trial})", f"{each.gain:+.0f}",
            "no" if each.certified is None else f"{each.certified:+.0f}",
            "nothing" if each.shipped is None else f"trial {each.shipped}" if each.shipped else "baseline",
            " ".join(f"{score:.0f}" for score in each.fresh), f"{each.seconds / 60:.1f}",
        )
        for each in demos
    ]  # fmt: skip
    show(("seed", "baseline", "champion", "gain", "certified", "ships", "its fresh runs", "minutes"), rows, title)
    show(("", ""), [(name, f"{value:.4g}") for name, value in summary(demos).items()])


if __name__ == "__main__":
    main()
