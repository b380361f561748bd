"""`nightshift try`: one training run and its score, outside of any campaign."""

from __future__ import annotations

import secrets
from pathlib import Path

from environments.plugins import Refused
from flows.cli import consent
from flows.cli.arguments import parse_params, placed, read_diff
from flows.cli.running import single_run
from flows.cli.set_option import overrides_only
from flows.views import terminal
from tasks.numbers import number
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system.home import home
from tasks.trial import Proposal, best


def attempt(
    environment: str | None, campaign: str | None, params: str, diff: Path | None, settings: list[str],
    trust: bool, seed: int | None, isolation: str, allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Train and judge once; 0 when that gave a score, else 1.

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
    from tasks.proposing.validation import originals

    if ledger:
        if settings:
            raise Refused("--set and --in exclude each other: the environment of a campaign is frozen")
        ledger.verify()
        folder = single_run.next_in(ledger.path / "tries")
        problem, program = ledger.environment, ledger.program
    else:
        overrides = overrides_only(settings)
        consent.ask_about(str(environment), overrides, trust)
        current = checked_environment(str(environment), overrides)
        folder = single_run.next_in(home() / ".tries" / current.name)
        problem, program = single_run.frozen(current, folder), folder / "program"
    if edit:
        edit = placed(edit, f"--diff {diff}", originals(problem, program), problem.editable)
    proposal = Proposal(problem.complete(values), edit, rationale="tried by hand", proposer="try")
    seed = secrets.randbelow(2**31) if seed is None else seed
    stage = single_run.stage(problem, isolation, allow_unsandboxed, edit is not None, folder.parent, "try")
    place = TrialDir(folder / "trial")
    planned = single_run.PlannedRun("try", 1, program, place, proposal, seed, secrets.randbelow(2**63))
    run, score = stage.measure(planned)
    champion = best(ledger.history()) if ledger else None
    if as_json:
        terminal.print_json(
            {
                "environment": problem.name, "params": proposal.params, "metric": problem.metric,
                **stage.facts(run, score), "steps": run.steps, "isolation": run.isolation,
                "champion": champion.score.value if champion else None,
            }
        )  # fmt: skip
        return 1 if score.error else 0
    if score.error:
        print(f"crash: {score.error}")
    else:
        beside = f", the champion of {campaign} had {number(champion.score.value)}" if champion else ""
        print(f"{problem.metric} {single_run.score_text(score)} after {run.seconds:.1f} s of training{beside}")
    print(f"see {place.path}")
    return 1 if score.error else 0
