"""A published headline, repeated: BipedalWalker from 135.6 to 296.6 in 30 trials, and its transfer to four robots.

    python -m benchmarks.headline facts
    python -m benchmarks.headline problem --budget 120 [--problem walker|envpool]
    python -m benchmarks.headline repeat --config start|best|original --budget 720 --seeds 5 [--checkout FOLDER]
    python -m benchmarks.headline repeat --config champion --campaign NAME --budget 720 --seeds 5
    python -m benchmarks.headline campaigns --budget 240 --trials 12 [--proposer tpe] [--seeds 1 2 3]
        [--problem walker|envpool|original]
    python -m benchmarks.headline transfer --campaign NAME [--robots hopper walker2d half_cheetah ant] [--budget 240]
    python -m benchmarks.headline table [--plot FILE]

zjianyi/autoRL reports one run of each configuration, with a fixed seed, of twelve minutes. Here each is run several
times, with seeds of its own, judged by 100 episodes that are drawn anew. `facts` lists what was published, the file
that says so, and where our program differs. `--problem envpool` is the walker trained with EnvPool on one core.

problem     write the environment of a campaign from the published start, for other commands, and print its folder
repeat      fresh runs of a published configuration: `start`; `best`, as far as it was published; `original`, the
            published program itself, imported from a clone of the repository (nothing of it is kept here); `champion`,
            the parameters that a campaign found, at any budget
campaigns   campaigns from the published start, each with a certificate at its end; `--proposer published` tries the
            published best alone and certifies it
transfer    the champion of a campaign and its baseline on other robots, which start as that campaign's baseline did
table       every table, and the picture of the last transfer, computed from the CSV files alone

Everything that has ended is a row in --store (benchmarks/results) and is not run again; campaigns live in --home and
go on where they were cut off. --budget is in seconds of training, by default the published 720.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from benchmarks.campaigns import HOMES, RESULTS, resumable
from benchmarks.headline import measure, picture, problems, tables
from benchmarks.headline.facts import BUDGET_SECONDS, EPISODES
from benchmarks.headline.measure import CHAMPION, PUBLISHED, Workplace

WIDTH = 300
"""Columns that a table may have: a line of Markdown is not wrapped."""


def main() -> None:
    options = parsed()
    console = Console(highlight=False, width=WIDTH)
    if options.command == "facts":
        tables.show_facts(console)
        return
    checkout = options.checkout.absolute() if options.checkout else None
    place = Workplace(options.home.absolute(), options.store.absolute(), options.episodes, checkout)
    if options.command == "problem":
        print(place.problem(options.problem, options.budget))
        return
    with resumable():
        perform(place, options)
    runs = place.runs.rows
    tables.show(runs, place.campaigns.rows, console)
    apart = [row for row in runs if row.stage == "transfer"]
    if options.plot and apart:
        picture.draw(runs, apart[-1].campaign, apart[-1].budget_seconds, options.plot)


def perform(place: Workplace, options: argparse.Namespace) -> None:
    """Run what the command asks for and is not kept yet; `table` asks for nothing."""
    if options.command == "repeat":
        measure.repeat(place, options.problem, options.config, options.campaign, options.budget, options.seeds)
    elif options.command == "campaigns":
        trials = 1 if options.proposer == PUBLISHED else options.trials
        for seed in options.seeds:
            measure.campaign(place, options.problem, options.budget, trials, options.hours, options.proposer, seed)
    elif options.command == "transfer":
        measure.transfer(place, options.campaign, tuple(options.robots), options.budget, options.runs)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A published headline, repeated.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--store", type=Path, default=RESULTS, help="folder of the CSV files")
    shared.add_argument("--home", type=Path, default=HOMES / "headline", help="folder of campaigns and problems")
    shared.add_argument("--checkout", type=Path, help="a clone of zjianyi/autoRL")
    shared.add_argument("--budget", type=seconds, default=float(BUDGET_SECONDS), help="seconds of training of each run")
    shared.add_argument(
        "--episodes",
        type=int,
        default=EPISODES,
        help="of each judgement; fewer, for a quick look, belong into another --store",
    )
    shared.add_argument("--plot", type=Path, help="draw the last transfer into this file")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("facts", help="what was published, and where our program differs")
    walkers = argparse.ArgumentParser(add_help=False)
    walkers.add_argument("--problem", choices=tuple(problems.WALKERS), default="walker", help="of our program")
    commands.add_parser("problem", parents=[shared, walkers], help="write the environment of such a campaign")
    repeat = commands.add_parser("repeat", parents=[shared, walkers], help="fresh runs of a published configuration")
    repeat.add_argument("--config", choices=tables.CONFIGURATIONS, default="start")
    repeat.add_argument("--campaign", default="", help="whose champion")
    repeat.add_argument("--seeds", type=int, default=5, help="runs, with the seeds from 1 on")
    search = commands.add_parser("campaigns", parents=[shared], help="campaigns from the published start")
    search.add_argument("--problem", choices=(*problems.WALKERS, "original"), default="walker")
    search.add_argument("--proposer", default="tpe", help=f"one of Nightshift's, or {PUBLISHED}")
    search.add_argument("--trials", type=int, default=12)
    search.add_argument("--hours", type=float, default=24.0, help="of each campaign at most")
    search.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    moved = commands.add_parser("transfer", parents=[shared], help="the champion of a campaign on other robots")
    moved.add_argument("--campaign", required=True)
    moved.add_argument("--robots", nargs="+", choices=problems.ROBOTS, default=list(problems.ROBOTS))
    moved.add_argument("--runs", type=int, default=3, help="of each arm on each robot")
    commands.add_parser("table", parents=[shared], help="every table, from the CSV files alone")
    options = parser.parse_args()
    if options.command == "campaigns" and options.proposer == PUBLISHED and options.problem == "original":
        parser.error("--proposer published is an edit of our program, and cannot be made in the original")
    if options.command == "repeat" and options.config == "original" and options.problem != "walker":
        parser.error(f"--problem {options.problem} is of our program, and cannot be made of the original")
    if options.command == "repeat" and (options.config == CHAMPION) != bool(options.campaign):
        parser.error("--config champion and --campaign NAME need each other")
    if "original" in (getattr(options, "config", ""), getattr(options, "problem", "")) and options.checkout is None:
        parser.error("the original program is imported from its repository: name a clone with --checkout")
    return options


def seconds(text: str) -> float:
    """A budget of more than nothing."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


if __name__ == "__main__":
    main()
