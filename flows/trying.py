"""`nightshift try`: one training run and one judgement outside of any campaign, to see whether an idea works at all."""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path

from environments import Environment
from environments.plugins import Refused
from flows import show
from flows.settings import parse_settings
from tasks.ledger import Ledger, freeze, home
from tasks.trial import Params, Proposal, best
from tasks.wording import number
from tasks.workspace import TrialDir


def attempt(
    environment: str | None, campaign: str | None, params: str, diff: Path | None, settings: list[str],
    seed: int | None, walls: str, allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Train and judge once; 0 when that gave a score, else 1.

    With `campaign`, in its frozen environment and beside its champion; its ledger is not touched.
    """
    if (environment is None) == (campaign is None):
        raise Refused("name one of the two: an environment, or --in CAMPAIGN")
    values, edit = _parsed(params), _read(diff) if diff else None
    ledger = Ledger.open(campaign) if campaign else None
    from flows.server import settle_in

    settle_in(home())
    from tasks.evaluate import judge_run
    from tasks.plausible import believed
    from tasks.sandbox import CannotStart
    from tasks.train import UNSANDBOXED, run_program
    from tasks.walls.confine import listed
    from tasks.walls.isolation import Isolation, check_given, choose

    problem, program, place = _in_campaign(ledger, settings) if ledger else _fresh(str(environment), settings)
    proposal = Proposal(problem.complete(values), edit, rationale="tried by hand", proposer="try")
    seed = secrets.randbelow(2**31) if seed is None else seed
    isolation = Isolation(choose(walls), allow_unsandboxed)
    check_given(isolation.level, home(), listed(problem))
    if not isolation.may_run(edit):
        raise Refused(UNSANDBOXED)
    marker = f"try-{secrets.token_hex(4)}"
    try:
        run = run_program(marker, problem, isolation, program, place, proposal, seed)
        run = believed(problem, (), proposal, run, place.path.parents[1])
        score = judge_run(marker, problem, isolation, place, run, secrets.randbelow(2**63))
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
        show.print_json(document)
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
    from flows.spec import checked_environment

    overrides, _ = parse_settings(settings)
    environment = checked_environment(reference, overrides)
    folder = _next_in(home() / ".tries" / environment.name)
    freeze(environment, folder)
    frozen = environment.model_copy(update={"folder": folder / "environment"})
    return frozen, folder / "program", TrialDir(folder / "trial")


def _in_campaign(ledger: Ledger, settings: list[str]) -> tuple[Environment, Path, TrialDir]:
    """What the campaign has frozen, and where the try goes."""
    if settings:
        raise Refused("--set and --in exclude each other: the environment of a campaign is frozen")
    ledger.verify()
    return ledger.environment, ledger.program, TrialDir(_next_in(ledger.path / "tries") / "trial")


def _next_in(folder: Path) -> Path:
    """The next chosened directory of a folder, made here, so that two tries at once get two."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = 1 + max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0)
    while True:
        try:
            (folder / f"{chosen:04d}").mkdir()
        except FileExistsError:
            chosen += 1
        else:
            return folder / f"{chosen:04d}"


def _parsed(text: str) -> Params:
    try:
        params = json.loads(text)
    except ValueError as wrong:
        raise Refused(f"--params {text!r} is not JSON: {wrong}") from wrong
    if not isinstance(params, dict) or not all(isinstance(v, int | float | str) for v in params.values()):
        raise Refused(
            f'--params {text!r}: give a JSON object of numbers, texts and booleans, such as {{"lr": 0.001}}'
        )
    return params


def _read(diff: Path) -> str:
    try:
        text = diff.read_text()
    except OSError as wrong:
        raise Refused(f"--diff {diff}: {wrong.strerror}") from wrong
    except UnicodeDecodeError as wrong:
        raise Refused(f"--diff {diff} is not text: {wrong}") from wrong
    if not text.strip():
        raise Refused(
            f"--diff {diff} is empty: give a unified diff, as `diff -u a/train.py b/train.py` writes it"
        )
    return text
