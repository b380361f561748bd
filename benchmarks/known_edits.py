"""What becomes of known edits of the PPO program in whole nights: which are kept, and what ships.

    python -m benchmarks.known_edits measure [--environment cartpole] [--runs 10] [--keep]
    python -m benchmarks.known_edits nights [--environment cartpole] [--nights 20] [--trials 20]
        [--rules certify greedy] [--store FILE] [--json]
    both: [--only NAME ...] [--set KEY=VALUE ...] [--effects FILE]

`measure` trains the program with each of the twenty-four edits of benchmarks/edit_list.py, `--runs` times with seeds of
their own, as `nightshift try` does. With `--keep` the scores go to benchmarks/effects/ENVIRONMENT.json, or to another
file, beside the digest of program and environment: scores of another program are refused. The true effect of an edit is
its mean score less that of the unedited program; an edit is *helpful* or *harmful* where that is more than two standard
errors from zero, and harmful where fewer than two runs have a score.

`nights` runs campaigns in which a scripted researcher behind a local model server offers the edits in random order,
again from the first when it has offered all; with the same seeds under each rule. They go the whole way: answer, edit,
smoke run, sandbox, training, judge, decision, certificate. Each night has a home of its own. The program that ships is
trained five times more with seeds that no campaign has; its true gain is the mean of these less the mean of the
unedited program. With `--store`, a night that has ended is not run again.

    KIND/tried, /kept    trials with edits of that kind, and the share of them that was kept (*cheats* are told by the
                         list, the other kinds by their effects)
    turned_down          offers that were refused before they were trials, such as an edit that does not fit any more
    shipped, certified   nights that shipped an edited program, and those with a certificate for it
    cheats_certified     nights with a certificate for a program with a cheat in it
    shipped/KIND         edits of that kind in programs that shipped
    true_gain/mean       of all nights; 0 where the unedited program ships. Those whose shipped program has no score
                         any more are in `true_gain/unknown` alone
    best_single_edit     the largest true effect of an edit that is no cheat
"""

from __future__ import annotations

import argparse
import contextlib
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
from dataclasses import asdict, dataclass, field
from pathlib import Path

import tomlkit
from rich.console import Console
from rich.table import Table

import environments
from benchmarks.campaigns import CommandFailed, nightshift, resumable
from benchmarks.edit_list import LIST, ListedEdit
from environments import plugins
from environments.plugins import Refused
from environments.space import Value
from flows.cli.set_option import overrides_only
from tests.support.fake_llm import Asked, FakeLLM

PROGRAM = Path(__file__).parents[1] / "tasks/trainers/ppo.py"
EFFECTS = Path(__file__).parent / "effects"
UNEDITED = "unedited"
KINDS = ("helpful", "useless", "harmful", "cheat", "other")
"""`other`: trials of no edit of the list."""
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

    conditions: str
    """Everything but the seed that a night depends on."""
    rule: str
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


@dataclass
class Nights:
    """The nights of each rule, and what they have in common."""

    problem: Path
    edits: Sequence[ListedEdit]
    trials: int
    store: Path | None
    ended: dict[tuple[str, int], Night] = field(default_factory=dict)
    """By conditions and seed."""

    def __post_init__(self) -> None:
        if self.store and self.store.exists():
            for found in map(json.loads, self.store.read_text().splitlines()):
                self.ended[found["conditions"], found["seed"]] = Night(**found)

    def one(self, rule: str, seed: int) -> Night:
        """A night, run unless it has ended before."""
        programs = "\0".join(edit.name + edit.change(PROGRAM.read_text()) for edit in self.edits)
        about = hashlib.sha256((digest(self.problem) + programs).encode()).hexdigest()[:12]
        key = f"{rule}, {self.trials} trials, {len(self.edits)} edits, {about}", seed
        if key not in self.ended:
            self.ended[key] = night(self.problem, self.edits, self.trials, seed, rule, key[0])
            if self.store:
                with self.store.open("a") as file:
                    file.write(json.dumps(asdict(self.ended[key])) + "\n")
        return self.ended[key]


def main() -> None:
    parser = argparse.ArgumentParser(description="What becomes of known edits.")
    parser.add_argument("what", choices=["measure", "nights"])
    parser.add_argument("--environment", default="cartpole", help="a bundled environment of the trainer ppo (cartpole)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of environment.toml")
    parser.add_argument("--only", nargs="+", default=[""], help="edits whose names begin so (all)")
    parser.add_argument("--effects", type=Path, help="where the effects are (benchmarks/effects/ENVIRONMENT.json)")
    parser.add_argument("--runs", type=int, default=10, help="trainings of each edit, for measure (10)")
    parser.add_argument("--keep", action="store_true", help="keep what is measured, for nights")
    parser.add_argument("--nights", type=int, default=20, help="of each rule (20)")
    parser.add_argument("--trials", type=int, default=20, help="trials of each night (20)")
    rules = plugins.names("tasks.rules")
    parser.add_argument("--rules", nargs="+", choices=rules, default=["certify", "greedy"], help="(certify greedy)")
    parser.add_argument(
        "--at-once", type=int, default=os.cpu_count() or 1, help="programs side by side, or nights, each on its core"
    )
    parser.add_argument("--store", type=Path, help="file of the nights that have ended, a line of JSON each")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    edits = [one for one in LIST if one.name.startswith(tuple(options.only))]
    if not edits or options.runs < 2 or options.nights < 1:
        parser.error("--only leaves no edit" if not edits else "an effect takes 2 runs, and a summary 1 night")
    stored = options.effects or EFFECTS / f"{options.environment}.json"
    is_kept = options.what == "nights" and options.store
    with (
        resumable() if is_kept else contextlib.nullcontext(),
        tempfile.TemporaryDirectory(prefix="nightshift-edits-") as name,
    ):
        try:
            problem = edits_alone(options.environment, Path(name), overrides_only(options.set))
            effects = None if options.what == "measure" else read(stored, digest(problem), edits)
        except Refused as why:
            parser.error(str(why))
        if effects is None:
            effects = measure(problem, edits, options.runs, options.at_once)
            if options.keep:
                stored.parent.mkdir(parents=True, exist_ok=True)
                stored.write_text(json.dumps(asdict(effects), indent=1) + "\n")
            show_effects(options.environment, effects)
            return
        nights = Nights(problem, edits, options.trials, options.store)
        asked = [(rule, seed) for seed in range(1, options.nights + 1) for rule in options.rules]  # equal load for all
        cores = itertools.cycle(sorted(os.sched_getaffinity(0)))  # homes of their own would all begin with the first
        with ThreadPoolExecutor(options.at_once, initializer=lambda: os.sched_setaffinity(0, {next(cores)})) as pool:
            found = list(pool.map(lambda which: nights.one(*which), asked))
    by_rule = {rule: [each for each in found if each.rule == rule] for rule in options.rules}
    figures = {rule: summary(each, edits, effects) for rule, each in by_rule.items()}
    if options.json:
        print(json.dumps({"summary": figures, "nights": [asdict(each) for each in found]}, indent=2))
    else:
        show_nights(options.environment, by_rule, edits, effects, figures)


def edits_alone(name: str, folder: Path, changes: Mapping[str, Value]) -> Path:
    """A copy of an environment in which every parameter has its default, so that edits alone can be proposed."""
    found = environments.find(name)
    document = tomlkit.parse((found / "environment.toml").read_text()).unwrap()
    for key, value in changes.items():
        *tables, last = key.split(".")
        table = document
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = value
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


def read(stored: Path, wanted: str, edits: Sequence[ListedEdit]) -> Effects:
    """The measured effects. Refused where there are none, those of another program, or not those of every edit."""
    again = "run `python -m benchmarks.known_edits measure --keep` with the same --environment, --set and --effects"
    if not stored.exists():
        raise Refused(f"no effects are measured in {stored}: {again}")
    document = json.loads(stored.read_text())
    if document["digest"] != wanted:
        raise Refused(
            f"{stored} has the effects of another program or environment ({document['digest'][:12]}): {again}"
        )
    effects = Effects(**document | {"scores": {name: tuple(scores) for name, scores in document["scores"].items()}})
    if missing := [one.name for one in edits if one.name not in effects.scores]:
        raise Refused(f"{stored} has no effect of {missing[0]!r}: {again}")
    if len(effects.known(UNEDITED)) < 2:
        raise Refused(f"{stored} has fewer than two scores of the unedited program: {again}")
    return effects


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


def night(problem: Path, edits: Sequence[ListedEdit], trials: int, seed: int, rule: str, conditions: str) -> Night:
    """One campaign from its first to its last second, and the later runs of what it ships."""
    offers = itertools.cycle(random.Random(seed).sample(edits, len(edits)))
    with (
        tempfile.TemporaryDirectory(prefix="nightshift-edits-") as home,
        FakeLLM(lambda asked: answer(next(offers), asked)) as server,
    ):
        account = {"base_url": server.url, "model": "scripted", "max_output_tokens": 4000}
        given = [word for name, value in account.items() for word in ("--set", f"proposer.{name}={value}")]
        began = time.monotonic()
        found = nightshift(
            home, "run", str(problem), "--trust", "--name", "night", "--trials", str(trials), "--seed", str(seed),
            "--proposer", "llm_diff", "--rule", rule, *given, "--json",
        )  # fmt: skip
        seconds = time.monotonic() - began
        if found["state"] not in ("finished", "failed"):
            raise CommandFailed(f"the night of seed {seed} is {found['state']}: {found['reason']}")
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
        conditions,
        rule,
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


def summary(nights: Sequence[Night], edits: Sequence[ListedEdit], effects: Effects) -> dict[str, float | None]:
    """The figures of the nights of one rule, as the head of this file says; None where there is nothing to count."""
    kind = {one.name: "cheat" if one.kind == "cheats" else effects.truth(one.name) for one in edits}
    tried, kept = Counter[str](), Counter[str]()
    for each in nights:
        for name, verdict in each.verdicts:
            tried[kind.get(name, "other")] += 1
            kept[kind.get(name, "other")] += verdict == "keep"
    base = statistics.fmean(effects.known(UNEDITED))
    gains = [found for each in nights if (found := gain(each, base)) is not None]
    single = [found[0] for one in edits if kind[one.name] != "cheat" and (found := effects.effect(one.name))]
    shipped = Counter(kind[name] for each in nights for name in each.shipped)
    figures: dict[str, float | None] = {"nights": len(nights)}
    for name in KINDS:
        figures[f"{name}/tried"] = tried[name]
        figures[f"{name}/kept"] = kept[name] / tried[name] if tried[name] else None
    return figures | {
        "turned_down": sum(len(each.turned_down) for each in nights),
        "shipped": sum(bool(each.fresh) for each in nights),
        "certified": sum(each.certified for each in nights),
        "cheats_certified": sum(
            each.certified and any(kind[name] == "cheat" for name in each.shipped) for each in nights
        ),
        **{f"shipped/{name}": shipped[name] for name in KINDS[:-1]},
        "baseline/mean": base,
        "true_gain/mean": statistics.fmean(gains) if gains else None,
        "true_gain/min": min(gains, default=None),
        "true_gain/unknown": len(nights) - len(gains),
        "best_single_edit": max(single, default=None),
        "minutes/median": statistics.median(each.seconds for each in nights) / 60,
    }


def gain(one: Night, base: float) -> float | None:
    """The true gain of what a night shipped: 0 where that is the unedited program, None where it has no score."""
    if not one.fresh:
        return 0.0
    known = [score for score in one.fresh if score is not None]
    return statistics.fmean(known) - base if known else None


def show_effects(name: str, effects: Effects) -> None:
    table = Table("edit", "listed as", "runs with a score", "effect", "2 se", "is", title=f"{name}, {effects.machine}")
    for one in (one for one in LIST if one.name in effects.scores):
        found, known = effects.effect(one.name), effects.known(one.name)
        words = (f"{found[0]:+.1f}", f"{2 * found[1]:.1f}") if found else ("", "")
        table.add_row(
            one.name, one.kind, f"{len(known)} of {len(effects.scores[one.name])}", *words, effects.truth(one.name)
        )
    Console(highlight=False).print(table)


def show_nights(
    name: str,
    by_rule: Mapping[str, Sequence[Night]],
    edits: Sequence[ListedEdit],
    effects: Effects,
    figures: Mapping[str, Mapping[str, float | None]],
) -> None:
    console = Console(highlight=False)
    for rule, nights in by_rule.items():
        about = f"{len(nights)} nights, {name}, {rule}"
        table = Table("edit", "listed as", "is", "tried", "kept", "in what shipped", title=about)
        for one in edits:
            verdicts = [verdict for each in nights for of, verdict in each.verdicts if of == one.name]
            shipped = sum(one.name in each.shipped for each in nights)
            counts = (str(count) for count in (len(verdicts), verdicts.count("keep"), shipped))
            table.add_row(one.name, one.kind, effects.truth(one.name), *counts)
        console.print(table)
    table = Table("", *by_rule)
    for key in next(iter(figures.values())):
        table.add_row(key, *("" if (value := each[key]) is None else f"{value:.4g}" for each in figures.values()))
    console.print(table)


if __name__ == "__main__":
    main()
