"""`nightshift compare A B`: fresh runs of one program and its configuration against fresh runs of another.

As in a certificate (tasks/stats/certificate.py), but two-sided. Every run is judged on units of its own: two programs
that are good at different questions would else be told apart by questions that they share. Those of a finite pool are
for `confirm`, so that no report question is used up. Everything is in runs/.comparisons/<environment>/0001/:

    match.json        what is compared, declared before the first run; more runs are added to it
    environment/, program/, trials/a-1/ ...    each finished run has a fresh.json
    comparison.json, comparison.png            rewritten after every run

The same command goes on with a comparison that was killed, and shows one that is over: whoever asks again and again
until a difference shows would find one. `--more` adds runs, under what is left of the error.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import environments
from environments import Environment
from environments.plugins import Refused
from environments.space import Value
from flows.cli import comparison_words, consent, own_script, rl_zoo, sides, single_runs
from flows.cli.match import CRASHED, DECLARATION, Counts, Declaration, Match
from flows.cli.own_script import OwnScript
from flows.cli.set_option import overrides_only
from flows.cli.single_runs import Side
from flows.views import terminal
from tasks.recipes import output
from tasks.recipes.preparing import laid
from tasks.stats.certificate import FEWEST
from tasks.store.ledger import Ledger, measure
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.system.home import home

FOLDER = ".comparisons"
RUNS = (5, 5)
"""Of each arm by default; FEWEST in a deterministic environment."""
EXIT_CODES = {"better": 0, "worse": 3}
"""Of A; 1 where neither was shown."""


def run(
    a: str | None, b: str | None, script: OwnScript | None, study: str | None, on: str | None, runs: str, more: str,
    settings: list[str], trust: bool, seed: int | None, isolation: str, allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run both sides and say which is better: 0: A is, 3: B is, 1: neither was shown."""
    counts = parse_runs(runs) if runs else None
    own = own_script.of_study(study, b) if study else [(a, a), (b, b)] if a and b else None
    if own is None:
        if a or b or script or on:
            raise Refused("give both sides: --a and --b, files or JSON of parameters, or two names (see --help)")
        match = opened(_newest(), isolation, allow_unsandboxed)
    elif script:
        match = of_script(script, own, counts, settings, seed, isolation, allow_unsandboxed)
    else:
        named = [sides.parse(arm, text) for arm, (text, _) in zip("ab", own, strict=True)]
        if campaign := sides.certified_campaign(named, on):
            return _certify(campaign, counts, more, trust, as_json)
        if on:
            consent.ask_about(on, overrides_only(settings), trust)
        match = prepare(named, on, counts, settings, seed, isolation, allow_unsandboxed)
    if more:
        match = with_more(match, parse_runs(more))
    return _show(match, as_json)


def own(train: str, evaluate: str, minutes: float, minimize: bool) -> OwnScript | None:
    """The user's own script, if one is named."""
    if bool(train) != bool(evaluate):
        raise Refused("--train and --eval belong together: give both commands")
    if not train:
        return None
    if not 0 < minutes <= 60 * 24 * 7:
        raise Refused(f"--minutes {minutes:g}: give the minutes that one training may take")
    return OwnScript(train, evaluate, Path.cwd(), minutes, minimize)


def _certify(campaign: str, counts: Counts | None, more: str, trust: bool, as_json: bool) -> int:
    """A campaign's champion against its own baseline: that is its certificate, whose runs count together."""
    from flows.cli import foreground

    single_runs.print_aside(f"{campaign}'s champion against its baseline: these runs count with those of `certify`")
    each = max(parse_runs(more) if more else counts or (0,)) or None
    return foreground.certify(campaign, [], each, "", trust, None, as_json)


def _show(match: Match, as_json: bool) -> int:
    if not as_json:
        for name, arm in zip(match.declared.names, match.declared.arms, strict=True):
            edited = " (edited program)" * (arm.proposal.edit is not None)
            print(f"{arm.name.upper()}: {terminal.clean(name)}{edited}")
        problem = match.stage.environment
        slots, each = len(match.stage.slots.parts), f"of {problem.budget_seconds:g} s at most"
        if not match.is_over:
            print(f"{len(match.missing)} fresh runs in {problem.name}, {each}, {slots} at a time", flush=True)
    document = match.play(lambda line: None if as_json else print(line, flush=True))
    picture = comparison_words.draw(document, match.stage.folder / "comparison.png")
    if as_json:
        terminal.print_json(document)
    else:
        print("\n".join([*comparison_words.strip(document), *map(terminal.clean, document["words"].splitlines())]))
        if document["gain"] is not None and document["verdict"] == "not shown":
            print("more runs of both may show one: nightshift compare --more 4")
        elif CRASHED in document["words"] and match.stage.isolation.level != "none":
            print("what the sandbox withholds: --isolation none runs it as you, without one; more time: --minutes")
        print(f"see {picture or document['directory']}")
    return EXIT_CODES.get(document["verdict"], 1)


def parse_runs(text: str) -> Counts:
    """`5v3`, or `5` for five of each."""
    first, v, second = text.partition("v")
    try:
        counts = int(first), int(second if v else first)
    except ValueError:
        counts = 0, 0
    if not all(0 < count <= 100 for count in counts):
        raise Refused(f"{text!r} is no number of runs: give 5 for five of each side, or 5v3")
    return counts


def of_rl_zoo(
    place: str, minutes: float, runs: str, settings: list[str], seed: int | None, isolation: str, as_json: bool
) -> int:
    """RL Zoo's tuned hyperparameters against Stable-Baselines3's defaults; as `run`."""
    with tempfile.TemporaryDirectory() as draft:
        script, named = rl_zoo.sides(place, Path(draft), minutes)
        match = of_script(script, named, parse_runs(runs) if runs else None, settings, seed, isolation, False)
    return _show(match, as_json)


def of_script(
    script: OwnScript, named: Sequence[tuple[str, str]], runs: Counts | None, settings: list[str], seed: int | None,
    isolation: str, allow_unsandboxed: bool,
) -> Match:  # fmt: skip
    """The comparison of two configurations of a user's own script; each is named, and a file or JSON."""
    with tempfile.TemporaryDirectory() as draft:
        folder = Path(draft) / script.folder.name
        both = script.write(folder, named)
        overrides = overrides_only(settings)
        environment = own_script.load(folder, overrides)
        return declared(environment, None, both, runs, overrides, seed, isolation, allow_unsandboxed)


def prepare(
    named: Sequence[tuple[Side, Ledger | None]], on: str | None, runs: Counts | None, settings: list[str],
    seed: int | None, isolation: str, allow_unsandboxed: bool,
) -> Match:  # fmt: skip
    """The comparison of two sides in an environment. Refused if a side cannot be run in it; nothing is left then."""
    ledgers = [ledger for _, ledger in named if ledger]
    environment, baseline = sides.common_environment(ledgers, on, settings)
    overrides = overrides_only(settings) if on else ledgers[0].campaign.overrides
    both = [side for side, _ in named]
    return declared(environment, baseline, both, runs, overrides, seed, isolation, allow_unsandboxed)


def declared(
    environment: Environment, baseline: Path | None, both: Sequence[Side], runs: Counts | None,
    overrides: dict[str, Value], seed: int | None, isolation: str, allow_unsandboxed: bool,
) -> Match:  # fmt: skip
    """The comparison, as it was declared if there is one of the same sides under the same conditions."""
    parent = home() / FOLDER / environment.name
    with single_runs.set_up(environment, baseline, both, parent, isolation, allow_unsandboxed) as (stage, arms):
        facts = [(arm.proposal.params, arm.proposal.edit, arm.program != stage.folder / "program") for arm in arms]
        digest = measure(stage.folder, stage.environment, {"sides": facts, "overrides": overrides})
        default = (FEWEST, FEWEST) if environment.deterministic else RUNS
        new = Declaration(
            environment.name, overrides, (both[0].text, both[1].text), (arms[0], arms[1]), digest,
            secrets.randbelow(2**31) if seed is None else seed, secrets.randbelow(2**63), (), (),
        ).with_more(runs or default, environment.deterministic)  # fmt: skip
        _check_pool(stage.environment, new)
        if earlier := _same(parent, digest, seed):
            match = opened(earlier, isolation, allow_unsandboxed)
            if not match.is_broken and (seed is None or not match.is_over):  # a stated seed asks for runs of its own
                file_trees.remove(stage.folder)
                return match
        _write(stage.folder, new)
    return Match(stage, new)


def opened(folder: Path, isolation: str, allow_unsandboxed: bool) -> Match:
    """A comparison that was declared."""
    known = DECLARATION.validate_json((folder / "match.json").read_bytes())
    environment = laid(environments.load(folder / "environment", known.overrides, known.environment), home())
    edited = any(arm.proposal.edit for arm in known.arms)
    return Match(single_runs.stage_in(folder, environment, isolation, allow_unsandboxed, edited), known)


def with_more(match: Match, counts: Counts) -> Match:
    """With another group of runs, once the ones before are made. Refused where these share out a finite pool."""
    problem = match.stage.environment
    if problem.judge.block_units == "disjoint":
        raise Refused("--more: the runs have shared out all questions of the pool: make more of them, or compare anew")
    if match.is_broken:
        return match
    if not match.is_over:
        single_runs.print_aside(f"--more waits until the {len(match.missing)} runs that are missing are made")
        return match
    more = match.declared.with_more(counts, problem.deterministic)
    _write(match.stage.folder, more)
    return replace(match, declared=more)


def _write(folder: Path, declaration: Declaration) -> None:
    write_atomic(folder / "match.json", DECLARATION.dump_json(declaration, indent=2).decode() + "\n")


def _newest() -> Path:
    found = sorted((home() / FOLDER).glob("*/*/match.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise Refused("there is no comparison yet: give two sides (see nightshift compare --help)")
    return found[-1].parent


def _same(parent: Path, digest: str, seed: int | None) -> Path | None:
    """The newest comparison of the same sides under the same conditions, with this seed if one is stated."""
    for file in sorted(parent.glob("*/match.json"), reverse=True):
        known = DECLARATION.validate_json(file.read_bytes())
        if known.digest == digest and seed in (None, known.seed):
            return file.parent
    return None


def _check_pool(environment: Environment, declaration: Declaration) -> None:
    """Refuse more runs than a finite pool has questions: each takes some of its own."""
    if environment.judge.block_units != "disjoint" or environment.prepared is None:
        return
    made, runs = output.read(environment.prepared), sum(declaration.groups[-1])
    if made and (has := made.questions.get("confirm")) is not None and has < runs:
        raise Refused(f"the pool for confirm has {has} questions, and each of {runs} runs needs one: give fewer --runs")
