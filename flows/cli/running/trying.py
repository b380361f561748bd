"""`nightshift try`: one training run and one judgement outside of any campaign, to see whether an idea works at all."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from environments import Environment
from environments.plugins import Refused
from flows.cli.running import single_run
from flows.cli.set_option import overrides_only
from flows.views import terminal
from tasks.describe import number
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system.home import home
from tasks.trial import Proposal, best


def attempt(
    environment: str | None, campaign: str | None, params: str, diff: Path | None, settings: list[str],
    seed: int | None, walls: str, allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Train and judge once; 0 when that gave a score, else 1.

    With `campaign`, in its frozen environment and beside its champion; its ledger is not touched.
    """
    if (environment is None) == (campaign is None):
        raise Refused("name one of the two: an environment, or --in CAMPAIGN")
    values = single_run.parse_params(params, "--params")
    edit = single_run.read_diff(diff, "--diff") if diff else None
    ledger = Ledger.open(campaign) if campaign else None
    from flows.server.connect import settle_in

    settle_in(home())
    from tasks.sandbox.program import CannotStart

    problem, program, place = _in_campaign(ledger, settings) if ledger else _fresh(str(environment), settings)
    proposal = Proposal(problem.complete(values), edit, rationale="tried by hand", proposer="try")
    seed = secrets.randbelow(2**31) if seed is None else seed
    stage = single_run.stage(
        problem, walls, allow_unsandboxed, edit is not None, place.path.parents[1], "try"
    )
    try:
        run, score = stage.measure(program, place, proposal, seed, units=secrets.randbelow(2**63))
    except CannotStart as fault:
        print(f"nightshift: {fault}", file=sys.stderr)
        return 1
    champion = best(ledger.history()) if ledger else None
    document = {
        "environment": problem.name, "params": proposal.params, "seed": seed, "score": score.value, "se": score.se,
        "n": score.n, "metric": problem.metric, "seconds": run.seconds, "steps": run.steps, "isolation": run.isolation,
        "error": score.error,
        "champion": champion.score.value if champion else None, "directory": str(place.path),
    }  # fmt: skip
    if as_json:
        terminal.print_json(document)
    elif score.error:
        print(f"crash: {score.error}")
    else:
        beside = f", the champion of {campaign} had {number(champion.score.value)}" if champion else ""
        se = f" (se {number(score.se)} over {score.n})" if score.se is not None else ""
        print(f"{problem.metric} {number(score.value)}{se} after {run.seconds:.1f} s of training{beside}")
    if not as_json:
        print(f"see {place.path}")
    return 1 if score.error else 0


def _fresh(reference: str, settings: list[str]) -> tuple[Environment, Path, TrialDir]:
    """The environment as it stands now, its program, both frozen for this try, and where the try goes."""
    from flows.spec.environment import checked_environment

    environment = checked_environment(reference, overrides_only(settings))
    folder = single_run.next_in(home() / ".tries" / environment.name)
    return single_run.frozen(environment, folder), folder / "program", TrialDir(folder / "trial")


def _in_campaign(ledger: Ledger, settings: list[str]) -> tuple[Environment, Path, TrialDir]:
    """What the campaign has frozen, and where the try goes."""
    if settings:
        raise Refused("--set and --in exclude each other: the environment of a campaign is frozen")
    ledger.verify()
    return ledger.environment, ledger.program, TrialDir(single_run.next_in(ledger.path / "tries") / "trial")
