"""What becomes of known edits of the PPO program in whole nights: which are kept, and what ships.

    python -m benchmarks.known_edits measure [--environment cartpole] [--runs 10] [--keep]
    python -m benchmarks.known_edits nights [--environment cartpole] [--nights 20] [--trials 20] [--rule RULE]
        [--store FILE] [--json]

`measure` trains the program with each of the twenty-four edits of benchmarks/edit_list.py, `--runs` times with seeds of
their own, as `nightshift try` does. With `--keep` the scores go to benchmarks/effects/ENVIRONMENT.json, beside the
digest of program and environment: scores of another program are refused. The true effect of an edit is its mean score
less that of the unedited program; an edit is *helpful* or *harmful* where that is more than two standard errors from
zero, and harmful where no run has a score.

`nights` runs campaigns in which a scripted researcher behind a local model server offers the edits in random order,
again from the first when it has offered all. They go the whole way: answer, edit, smoke run, sandbox, training, judge,
decision, certificate. Each night has a home of its own. The program that ships is trained five times more with seeds
that no campaign has; its true gain is the mean of these less the mean of the unedited program. With `--store`, a night
that has ended is not run again.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import itertools
import json
import math
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import tomlkit
from rich.console import Console
from rich.table import Table

import environments
from benchmarks.campaigns import nightshift
from benchmarks.edit_list import LIST, ListedEdit
from environments.plugins import Refused
from tests.support.fake_llm import Asked, FakeLLM

PROGRAM = Path(__file__).parents[1] / "tasks/trainers/ppo.py"
EFFECTS = Path(__file__).parent / "effects"
UNEDITED = "unedited"
FRESH = 5
FRESH_SEEDS = 1_000_000
"""From here on, far from the seeds of campaigns and of `measure`."""


@dataclass(frozen=True)
class Effects:
    """Scores of each edit's runs; None where a run has no score."""

    digest: str
    machine: str
    scores: dict[str, tuple[float | None, ...]]

    def known(self, name: str) -> list[float]:
        return [score for score in self.scores[name] if score is not None]

    def effect(self, name: str) -> tuple[float, float] | None:
        """The true effect and its standard error; None where no run has a score."""
        ours, base = self.known(name), self.known(UNEDITED)
        if len(ours) < 2:
            return None
        error = math.sqrt(statistics.variance(ours) / len(ours) + statistics.variance(base) / len(base))
        return statistics.fmean(ours) - statistics.fmean(base), error

    def truth(self, name: str) -> str:
        found = self.effect(name)
        if found is None or found[0] < -2 * found[1]:
            return "harmful"
        return "helpful" if found[0] > 2 * found[1] else "useless"


@dataclass(frozen=True)
class Night:
    """One campaign: what became of the edits that it was offered, and what it shipped."""

    seed: int
    verdicts: tuple[tuple[str, str], ...]
    """Edit and verdict of each trial, in their order; without the baseline."""
    turned_down: tuple[str, ...]
    """Why offers were refused before they were trials."""
    certified: bool
    shipped: tuple[str, ...]
    """The edits in the program that ships; empty: the unedited one."""
    fresh: tuple[float | None, ...]
    """Scores of the shipped program's later runs; empty where that is the unedited one."""
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description="What becomes of known edits.")
    parser.add_argument("what", choices=["measure", "nights"])
    parser.add_argument("--environment", default="cartpole", help="a bundled environment of the trainer ppo (cartpole)")
    parser.add_argument("--runs", type=int, default=10, help="trainings of each edit, for measure (10)")
    parser.add_argument("--first", type=int, default=len(LIST), help="measure only the first so many edits (all)")
    parser.add_argument("--keep", action="store_true", help="keep what is measured, for nights")
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument("--trials", type=int, default=20, help="trials of each night (20)")
    parser.add_argument("--rule", default="", help="the rule of the campaigns (that of the environment)")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="programs or nights side by side")
    parser.add_argument("--store", type=Path, help="file of the nights that have ended, a line of JSON each")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightshift-edits-") as name:
        problem = edits_alone(options.environment, Path(name))
        stored = EFFECTS / f"{options.environment}.json"
        if options.what == "measure":
            effects = measure(problem, LIST[: options.first], options.runs, options.at_once)
            if options.keep:
                stored.parent.mkdir(exist_ok=True)
                stored.write_text(json.dumps(asdict(effects), indent=1) + "\n")
            show_effects(options.environment, effects)
            return
        effects = read(stored, digest(problem))
        lines = options.store.read_text().splitlines() if options.store and options.store.exists() else []
        ended = {found["seed"]: Night(**found) for found in map(json.loads, lines)}

        def one(seed: int) -> Night:
            if seed not in ended:
                ended[seed] = night(problem, options.trials, seed, options.rule)
                if options.store:
                    with options.store.open("a") as file:
                        file.write(json.dumps(asdict(ended[seed])) + "\n")
            return ended[seed]

        with ThreadPoolExecutor(options.at_once) as pool:
            nights = list(pool.map(one, range(1, options.nights + 1)))
    figures = summary(nights, effects)
    if options.json:
        print(json.dumps({"summary": figures, "nights": [asdict(each) for each in nights]}, indent=2))
    else:
        show_nights(options.environment, nights, effects, figures)


def edits_alone(name: str, folder: Path) -> Path:
    """A copy of an environment in which every parameter has its default, so that edits alone can be proposed."""
    found = environments.find(name)
    document = tomlkit.parse((found / "environment.toml").read_text()).unwrap()
    defaults = {key: value["default"] for key, value in document.pop("space").items()}
    document["fixed"] = defaults | document.get("fixed", {})
    place = folder / f"{name}_edits"
    place.mkdir()
    (place / "environment.toml").write_text(tomlkit.dumps(document))
    (place / "program.md").write_text((found / "program.md").read_text())
    return place


def digest(problem: Path) -> str:
    """Of what an effect depends on: the program, its contract and the environment."""
    files = (PROGRAM, PROGRAM.with_name("_program.py"), problem / "environment.toml")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def read(stored: Path, wanted: str) -> Effects:
    """The measured effects. Refused where there are none, or those of another program."""
    again = f"run `python -m benchmarks.known_edits measure --keep --environment {stored.stem}`"
    if not stored.exists():
        raise Refused(f"no effects are measured for {stored.stem}: {again}")
    document = json.loads(stored.read_text())
    if document["digest"] != wanted:
        raise Refused(
            f"{stored} has the effects of another program or environment ({document['digest'][:12]}): {again}"
        )
    return Effects(**document | {"scores": {name: tuple(scores) for name, scores in document["scores"].items()}})


def measure(problem: Path, edits: Sequence[ListedEdit], runs: int, at_once: int) -> Effects:
    """Train the unedited program and each of the edits."""
    programs = {UNEDITED: PROGRAM.read_text()} | {one.name: one.change(PROGRAM.read_text()) for one in edits}
    jobs = [(name, seed) for seed in range(1, runs + 1) for name in programs]  # interleaved: equal load for all
    with tempfile.TemporaryDirectory(prefix="nightshift-edits-") as home, ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda job: trained(home, problem, programs[job[0]], job[1]), jobs))
    scores = {name: tuple(score for (of, _), score in zip(jobs, found, strict=True) if of == name) for name in programs}
    machine = f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"
    return Effects(digest(problem), machine, scores)


def trained(home: str, problem: Path, program: str, seed: int) -> float | None:
    """The score of one training of a program."""
    command = ["try", str(problem), "--trust", "--seed", str(seed), "--json"]
    before, after = PROGRAM.read_text().splitlines(keepends=True), program.splitlines(keepends=True)
    with tempfile.NamedTemporaryFile("w", suffix=".diff") as file:
        file.writelines(difflib.unified_diff(before, after, "a/train.py", "b/train.py"))
        file.flush()
        document = nightshift(home, *command, *(("--diff", file.name) if before != after else ()))
    score: float | None = document["score"]
    return score


def night(problem: Path, trials: int, seed: int, rule: str) -> Night:
    """One campaign from its first to its last second, and the later runs of what it ships."""
    offers = itertools.cycle(random.Random(seed).sample(LIST, len(LIST)))
    with (
        tempfile.TemporaryDirectory(prefix="nightshift-edits-") as home,
        FakeLLM(lambda asked: answer(next(offers), asked)) as server,
    ):
        account = {"base_url": server.url, "model": "scripted", "max_output_tokens": 4000}
        given = [word for name, value in account.items() for word in ("--set", f"proposer.{name}={value}")]
        chosen = ["--rule", rule] if rule else []
        began = time.monotonic()
        found = nightshift(
            home, "run", str(problem), "--trust", "--name", "night", "--trials", str(trials), "--seed", str(seed),
            "--proposer", "llm_diff", *given, *chosen, "--json",
        )  # fmt: skip
        seconds = time.monotonic() - began
        shipped: tuple[str, ...] = ()
        fresh: tuple[float | None, ...] = ()
        if number := found["shipped_trial"]:
            program = (Path(home) / f"night/trials/{number:04d}/workspace/train.py").read_text()
            shipped = tuple(one.name for one in LIST if one.change.is_in(program))
            seeds = range(FRESH_SEEDS + 100 * seed, FRESH_SEEDS + 100 * seed + FRESH)
            fresh = tuple(trained(home, problem, program, other) for other in seeds)
    rows = [row for row in found["trials"] if row["trial"]]
    proof = found["certificate"]
    return Night(
        seed,
        tuple((row["description"].partition(": ")[0], row["verdict"]) for row in rows),
        tuple(one["words"] for one in found["incidents"] if one["kind"] == "turned down"),
        bool(proof and proof["passed"]),
        shipped,
        fresh,
        seconds,
    )


def answer(one: ListedEdit, asked: Asked) -> str:
    """What a model says that proposes an edit, as search and replace blocks of whole lines; /v1/models is not asked."""
    lines = PROGRAM.read_text().splitlines(keepends=True)
    text = "".join(lines)
    blocks = []
    for before, after in one.change.replacements:
        start = text.rindex("\n", 0, text.index(before)) + 1
        end = text.index("\n", text.index(before) + len(before) - 1) + 1
        whole = text[start:end]
        blocks.append(f"train.py\n<<<<<<< SEARCH\n{whole}=======\n{whole.replace(before, after)}>>>>>>> REPLACE\n")
    return f"RATIONALE: {one.name}: {one.rationale}\nCATEGORY: {one.kind}\n\n" + "\n".join(blocks)


def summary(nights: Sequence[Night], effects: Effects) -> dict[str, float]:
    """Shares of offers that were tried and kept, by what the edits truly are; gains in the environment's metric."""
    kind = {one.name: "cheat" if one.kind == "cheats" else effects.truth(one.name) for one in LIST}
    tried, kept = Counter[str](), Counter[str]()
    for each in nights:
        for name, verdict in each.verdicts:
            tried[kind[name]] += 1
            kept[kind[name]] += verdict == "keep"
    base = statistics.fmean(effects.known(UNEDITED))
    gains = [gain(each, base) for each in nights]
    single = [found[0] for one in LIST if (found := effects.effect(one.name)) and kind[one.name] != "cheat"]
    figures: dict[str, float] = {"nights": len(nights), "shipped": sum(bool(each.shipped) for each in nights)}
    for name in ("helpful", "useless", "harmful", "cheat"):
        figures[f"{name}/tried"] = tried[name]
        figures[f"{name}/kept"] = kept[name] / tried[name] if tried[name] else math.nan
    shipped = [name for each in nights for name in each.shipped]
    figures |= {f"shipped/{name}": sum(kind[one] == name for one in shipped) for name in set(kind.values())}
    return figures | {
        "baseline/mean": base,
        "true_gain/mean": statistics.fmean(gains),
        "true_gain/min": min(gains),
        "best_single_edit": max(single),
        "minutes/median": statistics.median(each.seconds for each in nights) / 60,
    }


def gain(one: Night, base: float) -> float:
    """The true gain of what a night shipped; 0 where that is the unedited program."""
    known = [score for score in one.fresh if score is not None]
    return statistics.fmean(known) - base if known else 0.0


def show_effects(name: str, effects: Effects) -> None:
    table = Table("edit", "listed as", "runs with a score", "effect", "2 se", "is", title=f"{name}, {effects.machine}")
    for one in (one for one in LIST if one.name in effects.scores):
        found, known = effects.effect(one.name), effects.known(one.name)
        words = (f"{found[0]:+.1f}", f"{2 * found[1]:.1f}") if found else ("", "")
        table.add_row(
            one.name, one.kind, f"{len(known)} of {len(effects.scores[one.name])}", *words, effects.truth(one.name)
        )
    Console(highlight=False).print(table)


def show_nights(name: str, nights: Sequence[Night], effects: Effects, figures: Mapping[str, float]) -> None:
    table = Table("edit", "listed as", "is", "tried", "kept", "in what shipped", title=f"{len(nights)} nights, {name}")
    for one in LIST:
        verdicts = [verdict for each in nights for of, verdict in each.verdicts if of == one.name]
        shipped = sum(one.name in each.shipped for each in nights)
        counts = (str(count) for count in (len(verdicts), verdicts.count("keep"), shipped))
        table.add_row(one.name, one.kind, effects.truth(one.name), *counts)
    console = Console(highlight=False)
    console.print(table)
    for key, value in figures.items():
        console.print(f"{key:<20} {value:.4g}")


if __name__ == "__main__":
    main()
