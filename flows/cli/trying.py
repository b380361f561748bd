"""`nightshift try`: runs of one program and its parameters outside of any campaign, and what they say of the noise."""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments import Environment
from environments.plugins import Refused
from flows.cli import consent, single_runs
from flows.cli.arguments import parse_params, read_diff
from flows.cli.set_option import overrides_only
from flows.cli.single_runs import Arm, FreshRun, Side, Stage
from flows.views import terminal
from tasks.numbers import number
from tasks.run_checks import learned_nothing
from tasks.stats.design import design_of
from tasks.stats.permutation import CONFIDENCE, pooled
from tasks.store.ledger import Ledger
from tasks.system.home import home
from tasks.trial import best

TRIALS = 20
"""Of a campaign, for the certificate whose smallest likely gain is told."""
POWER = 0.8
"""A gain is said to be shown if it is shown this often."""
RATIO = 1.7
"""A champion's runs may scatter this much more than the baseline's, which alone are known before a campaign."""


@dataclass(frozen=True)
class Try:
    """A program with its parameters, ready to run under one or more seeds."""

    stage: Stage
    arm: Arm
    seeds: tuple[int, ...]
    is_baseline: bool
    """Whether program and parameters are the environment's own."""

    def measure(self, quiet: bool) -> list[FreshRun]:
        """Train and judge under each seed, until a run has no score."""
        done = list[FreshRun]()
        for one in self.stage.runs(self.arm, self.seeds):
            done.append(one)
            if len(self.seeds) > 1 and not quiet:
                text = single_runs.score_text(one.score)
                print(f"run {one.number} of {len(self.seeds)}  seed {one.run.seed:<10}  {text}", flush=True)
            if one.score.value is None:
                break
        return done

    def document(self, done: Sequence[FreshRun]) -> dict[str, Any]:
        """The output of `--json`: of one run its facts; of several what they say together, and each of them."""
        problem, (last, *_) = self.stage.environment, reversed(done)
        about = {
            "environment": problem.name, "params": self.arm.proposal.params, "metric": problem.metric,
            "direction": problem.direction, "isolation": self.stage.isolation.level,
        }  # fmt: skip
        if len(self.seeds) == 1:
            return {**about, **self.stage.facts(last.run, last.score), "steps": last.run.steps}
        scores = [one.score.value for one in done if one.score.value is not None]
        return {
            **about, "score": None if last.score.error else statistics.fmean(scores),
            **noise_of(scores, problem.deterministic, self.is_baseline), "error": last.score.error,
            "runs": [self.stage.facts(one.run, one.score) for one in done], "directory": str(self.stage.folder),
        }  # fmt: skip


def attempt(
    environment: str | None, campaign: str | None, params: str, diff: Path | None, runs: int, settings: list[str],
    trust: bool, seed: int | None, isolation: str, allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run a program and its parameters, and say how it scored; 0 when every run has a score, else 1.

    Args:
        campaign: Use its frozen environment, and compare with its champion; its ledger does not change.
    """
    if (environment is None) == (campaign is None):
        raise Refused("name one of the two: an environment, or --in CAMPAIGN")
    values = parse_params(params, "--params")
    edit = read_diff(diff, "--diff") if diff else None
    ledger = Ledger.open(campaign) if campaign else None
    from flows.server.server_process import settle_in

    settle_in(home())  # before Prefect, which these import
    from flows.spec.environment import checked_environment

    if ledger:
        if settings:
            raise Refused("--set and --in exclude each other: the environment of a campaign is frozen")
        ledger.verify()
        current, program = ledger.environment, ledger.program
    else:
        overrides = overrides_only(settings)
        consent.ask_about(str(environment), overrides, trust)
        current, program = checked_environment(str(environment), overrides), None
    first = secrets.randbelow(2**31) if seed is None else seed
    seeds = tuple((first + turn) % 2**31 for turn in range(runs))
    side = Side("run", f"--diff {diff}", values, edit)
    ready = prepare(current, program, side, seeds, isolation, allow_unsandboxed)
    done = ready.measure(quiet=as_json)
    document, champion = ready.document(done), best(ledger.history()) if ledger else None
    document["champion"] = champion.score.value if champion else None
    if as_json:
        terminal.print_json(document)
    else:
        print(in_words(ready, done, document))
        if champion:
            print(f"the champion of {campaign} had {number(champion.score.value)}")
        print(f"see {document['directory']}")
    return 1 if document["error"] else 0


def prepare(
    environment: Environment, program: Path | None, side: Side, seeds: tuple[int, ...], isolation: str = "auto",
    allow_unsandboxed: bool = False,
) -> Try:  # fmt: skip
    """Freeze the environment. Refused as in `set_up`.

    Args:
        program: The baseline that a campaign has frozen; None: the environment's own.
    """
    is_baseline = not (program or side.params or side.edit)
    parent = home() / ".tries" / environment.name
    with single_runs.set_up(environment, program, [side], parent, isolation, allow_unsandboxed) as (stage, (arm,)):
        return Try(stage, arm, seeds, is_baseline)


def in_words(ready: Try, done: Sequence[FreshRun], document: dict[str, Any]) -> str:
    """What the runs say, a sentence a line."""
    run, problem = done[-1].run, ready.stage.environment
    if document["error"]:
        return f"crash: {document['error']}"
    still = learned_nothing(ready.stage.folder.parent / run.dir, problem.metric)
    warning = [f"learned nothing: {still}"] if still else []
    if len(ready.seeds) == 1:
        score = f"{problem.metric} {single_runs.score_text(done[-1].score)} after {run.seconds:.1f} s of training"
        return "\n".join([score, *warning])
    count = len(document["runs"])
    mean = f"{problem.metric} {number(document['score'])} on average over {count} runs"
    between = f"{number(document['sd_low'])}..{number(document['sd_high'])}"
    spread = f"spread between runs: sd {number(document['sd'])} ({100 * CONFIDENCE:.0f} % interval {between})"
    lines = [f"{mean}; {spread}" if document["sd"] else f"{mean}, which all scored the same"]
    if (shown := document["detectable"]) and document["sd"]:
        arms = f"{shown['champion']} v {shown['baseline']} fresh runs"
        lines.append(
            f"smallest gain that a certificate likely sees ({100 * POWER:.0f} % of the time, {arms}, as after {TRIALS} "
            f"trials): {number(shown['gain'])}, or {number(shown['noisier'])} if the champion's runs scatter {RATIO:g} "
            "times as much"
        )
    return "\n".join([*lines, *warning])


def noise_of(scores: Sequence[float], deterministic: bool, of_baseline: bool) -> dict[str, Any]:
    """The spread between runs, with its interval, and of a baseline the smallest gain that would likely be certified.

    It is None with fewer than two scores.
    """
    noise = pooled([scores])
    if noise is None:
        return {"sd": None, "sd_low": None, "sd_high": None, "detectable": None}
    low, high = sd_interval(noise.sd, noise.df)
    design = design_of(TRIALS, deterministic)
    arms, level = design.groups[-1], design.levels[-1]
    gains = [detectable(arms, noise.sd, ratio, level) for ratio in (1.0, RATIO)]
    shown = {"champion": arms[0], "baseline": arms[1], "power": POWER, "gain": gains[0], "noisier": gains[1]}
    return {"sd": noise.sd, "sd_low": low, "sd_high": high, "detectable": shown if of_baseline else None}


def detectable(arms: tuple[int, int], sd: float, ratio: float, level: float) -> float:
    """True gain that runs of both arms show with POWER at `level`, in the normal approximation.

    Args:
        sd: Standard deviation between runs of the baseline.
        ratio: That of the champion, relative to it.
    """
    from scipy import special  # type: ignore[import-untyped]

    return float(special.ndtri(POWER) - special.ndtri(level)) * sd * math.sqrt(ratio**2 / arms[0] + 1 / arms[1])


def sd_interval(sd: float, df: int) -> tuple[float, float]:
    """Interval of the true standard deviation at CONFIDENCE, given an estimate with `df` degrees of freedom."""
    from scipy import special

    tail = (1 - CONFIDENCE) / 2
    return sd * math.sqrt(df / special.chdtri(df, tail)), sd * math.sqrt(df / special.chdtri(df, 1 - tail))
