"""The ledger: one campaign's directory, and everything that is read from it.

    runs/<campaign>/
        campaign.json     identity and fixed settings; written once
        environment/      the frozen environment                 program/   the frozen baseline program
        trials/0007/      see tasks/store/workspace.py           results/   task results (tasks/checkpoint.py)
        trials/0007-run-2/   its second training seed; 0007-again-1/: a rerun that its verdict needed
        trials/0007.2/    trial 7, run again: another attempt, with the same proposal; 0007.2-run-2: a further run of it
        certificates/1.json   a certificate, with its runs beside it; 1-at-4x-on-NAME.json: with another training budget
                          in another environment, which is frozen in on-NAME/
        results.tsv       one line per finished trial            events.jsonl   events in order
        lineage.git       one commit per trial (tasks/store/lineage.py)   lock   of the running process

All state is derived from these files. The campaign's memory is `history()`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import itertools
import json
import os
import platform
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

import environments
from environments import Environment, plugins
from environments.judges import Judge
from environments.plugins import Refused, T
from environments.score import Score
from tasks import preparing
from tasks.sandbox import outputs
from tasks.stats.ablation import Ablation
from tasks.stats.certificate import Certificate
from tasks.store import lineage, workspace
from tasks.store.workspace import TrialDir
from tasks.system.files import append_line, read_lines, write_atomic
from tasks.system.home import home
from tasks.task_key import JUDGED, Purpose, TaskKey, derive, digest_of
from tasks.trial import History, Proposal, Trial

FORMAT = 2
"""Campaigns of format 1, of version 0.6 and before, can be read and not resumed."""
CERTIFICATE = TypeAdapter(Certificate)
ABLATION = TypeAdapter(Ablation)
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
TAKEN = re.compile(r"artifacts|mlflow\.db.*|(index|comparison)\.html")
"""Names in the same home of MLflow's data, and of pages about several campaigns."""
AGAIN = re.compile(r"(\d+)\.(\d+)")
FREEZE_LIMIT = 256 * 2**20
"""Largest size of an environment's folder in bytes: every campaign copies it."""


class Settings(BaseModel, frozen=True, extra="forbid"):
    """Settings that change scores or verdicts, fixed for the campaign."""

    overrides: dict[str, Any]
    proposer: str
    options: dict[str, Any]
    seed: int
    rule: str
    rule_options: dict[str, Any] = {}
    cancel: str = "none"
    cancel_options: dict[str, Any] = {}
    replicates: int = 1
    fallback: str = "tpe"
    learn_from: tuple[str, ...] = ()
    """Earlier campaigns whose trials are in learned.json."""


class Campaign(Settings):
    model_config = ConfigDict(frozen=True, extra="ignore")  # an old campaign, which is only shown, had other options

    format: int = FORMAT
    name: str
    campaign_id: str
    """Random, and part of every key, so that a re-made campaign of the same name never meets old results."""
    created: float
    """Unix time, in seconds."""
    environment: str
    source: str
    """Origin of the frozen environment: a bundled name, or a path."""
    judge_key: str = ""
    """Secret from which the judge's draws are derived, so that no program can compute them. Empty in old campaigns."""
    digest: str
    """Digest of everything that changes a score (`measure`), at the start."""
    isolation: str
    """Isolation level at the start (tasks/sandbox/confinement.py); each run records its own."""
    version: str
    commit: str = ""
    """The commit that the environment came from (tasks/store/lineage.py); empty outside of git."""


CAMPAIGN = TypeAdapter(Campaign)


def check_name(name: str) -> str:
    """Check a campaign's name, which is also a directory and part of keys and URLs."""
    if not NAME.fullmatch(name) or TAKEN.fullmatch(name):
        rule = "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit, and not a file of MLflow's or a page"
        raise Refused(f"campaign name {name!r}: {rule}")
    return name


def campaigns() -> tuple[str, ...]:
    paths = filter(Path.is_file, home().glob("[!.]*/campaign.json"))
    return tuple(path.parent.name for path in sorted(paths, key=lambda path: (path.stat().st_mtime, path)))


def readable() -> Iterator[Ledger]:
    """Every campaign in this home that can be read; `status --all` names the others."""
    for name in campaigns():
        with suppress(Refused):
            yield Ledger.open(name)


def stem_of(name: str, most: int) -> str:
    """The beginning of campaigns' names that is made from another name."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:most] or "campaign"


def free_name(environment: str) -> str:
    """`<environment>-<n>` with the next free n, reserved by creating its directory."""
    stem = stem_of(environment, 56)
    taken = [int(tail) for path in home().glob(f"{stem}-*") if (tail := path.name[len(stem) + 1 :]).isdecimal()]
    for number in itertools.count(max(taken, default=0) + 1):
        with suppress(FileExistsError):  # another campaign that starts at the same moment
            (home() / f"{stem}-{number}").mkdir(mode=0o700)
            break
    return f"{stem}-{number}"


class Ledger:
    def __init__(self, path: Path, campaign: Campaign) -> None:
        self.path = path
        self.campaign = campaign
        self.program, self.results, self.trials = (path / name for name in ("program", "results", "trials"))
        self._events: tuple[int, list[dict[str, Any]]] = (0, [])

    @classmethod
    def exists(cls, name: str) -> bool:
        return (home() / check_name(name) / "campaign.json").is_file()

    @classmethod
    def open(cls, name: str) -> Ledger:
        """Open an existing campaign; Refused if there is none of that name, or a newer version wrote it."""
        if not cls.exists(name):
            plugins.require(name, campaigns(), what="campaign")
        return cls.at(home() / name)

    @classmethod
    def at(cls, path: Path) -> Ledger:
        """The campaign in a directory, of whichever home; Refused as in `open`."""
        file = path / "campaign.json"
        campaign = _read(CAMPAIGN, str(file))
        if campaign.format > FORMAT:
            raise Refused(f"{file} has format {campaign.format}, this Nightshift reads up to {FORMAT}: upgrade it")
        return cls(path, campaign)

    @classmethod
    def create(
        cls, name: str, environment: Environment, *, source: str, settings: Settings, isolation: str, spec: str,
        more: Mapping[str, str] | None = None,
    ) -> Ledger:  # fmt: skip
        """Freeze the environment and its program, and write the files of `more`. They appear at once: a kill leaves a
        hidden directory, which the next creation replaces.
        """
        path, draft = home() / check_name(name), home() / f".{name}.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700, parents=True)
        freeze(environment, draft)
        for file, text in {"spec.toml": spec, **(more or {})}.items():
            write_atomic(draft / file, text)
        campaign = Campaign(
            name=name, campaign_id=secrets.token_hex(6), judge_key=secrets.token_hex(16), created=time.time(),
            environment=environment.name, source=source, isolation=isolation,
            digest=measure(draft, environment, settings.model_dump()),
            version=importlib.metadata.version("nightshift-rl"), commit=lineage.source_commit(environment.folder),
            **settings.model_dump(),
        )  # fmt: skip
        write_atomic(draft / "campaign.json", campaign.model_dump_json(indent=2) + "\n", lasting=True)
        try:
            draft.rename(path)  # the name may be reserved by an empty directory
        except OSError as taken:
            shutil.rmtree(draft)
            raise Refused(f"{path} exists, and is not empty: choose another name for the campaign") from taken
        return cls(path, campaign)

    def check_version(self) -> None:
        """Refuse to go on with a campaign of an earlier format, whose specification may have options that are gone."""
        if self.campaign.format < FORMAT:
            raise Refused(
                f"campaign {self.campaign.name!r} was begun by Nightshift {self.campaign.version}: use that version, "
                "or begin a new campaign that learns from it (learn_from)"
            )

    def verify(self) -> None:
        """Refuse to continue if new scores would not compare with the old ones."""
        self.check_version()
        campaign = self.campaign
        settings = campaign.model_dump(include=set(Settings.model_fields))
        if measure(self.path, self.environment, settings) != campaign.digest:
            raise Refused(
                f"campaign {campaign.name!r}: its frozen files or the code of its judge have changed since Nightshift "
                f"{campaign.version} began it, so new scores would not compare with the old: restore {self.path}, "
                "finish it with that version, or begin a new campaign"
            )
        preparing.compare(self.environment)

    @property
    def spec(self) -> dict[str, Any]:
        """The specification of its last life; Refused if the file is damaged."""
        return plugins.read_toml(self.path / "spec.toml")

    @cached_property
    def environment(self) -> Environment:
        frozen = environments.load(self.path / "environment", self.campaign.overrides, self.campaign.environment)
        return preparing.laid(frozen, self.path.parent)

    def attempt(self, number: int) -> int:
        """The current attempt at a trial, from 1."""
        attempt = 1
        while (self.trials / directory(number, attempt + 1)).is_dir():
            attempt += 1
        return attempt

    def pending_attempts(self) -> dict[int, int]:
        """The trials that are to be run again, with the number of the attempt, in order: it has no trial.json yet."""
        again = {path: AGAIN.fullmatch(path.name) for path in self.trials.iterdir()}
        return dict(
            sorted((int(it[1]), int(it[2])) for path, it in again.items() if it and not (path / "trial.json").is_file())
        )

    def begin_attempt(self, number: int) -> int:
        """Begin another attempt at a trial, with the same proposal; returns its number."""
        attempt = self.attempt(number) + 1
        name = directory(number, attempt)
        draft = self.trials / f".{name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        shutil.copyfile(self.place(number, attempt=1).proposal, draft / "proposal.json")
        draft.rename(self.trials / name)
        return attempt

    def place(self, number: int, attempt: int | None = None) -> TrialDir:
        """Directory of a trial, in the current attempt by default."""
        return TrialDir(self.trials / directory(number, attempt or self.attempt(number)))

    def place_of(self, trial: Trial) -> TrialDir:
        return self.place(trial.number, attempt=trial.attempt)

    def key(self, number: int, part: str = "", attempt: int = 1) -> TaskKey:
        """Key of a trial's results. Runs of certificates count to the first attempt."""
        return TaskKey(self.campaign.campaign_id, self.campaign.digest, number, attempt, part)

    def seed(self, purpose: Purpose, key: TaskKey) -> int:
        judged = purpose in JUDGED and self.campaign.judge_key
        return derive(judged or self.campaign.seed, purpose, key.number, key.attempt, key.part)

    def attempts_decided(self) -> tuple[Trial, ...]:
        trials = (decided_trial(folder) for folder in self.trials.iterdir())
        return tuple(sorted(filter(None, trials), key=lambda trial: trial.order))

    def history(self) -> History:
        """Every decided trial, in the order of the decisions. Of one that was run again its last decided attempt."""
        newest = {trial.number: trial for trial in sorted(self.attempts_decided(), key=lambda trial: trial.attempt)}
        return tuple(sorted(newest.values(), key=lambda trial: trial.order))

    def proposals(self, history: History) -> tuple[Proposal, ...]:
        """Every proposal, whatever became of it, by number. Only those without a trial in `history` are read."""
        proposals = {trial.number: trial.proposal for trial in history}
        for folder in self.trials.iterdir():
            file = folder / "proposal.json"
            if folder.name.isdecimal() and int(folder.name) not in proposals and file.is_file():
                proposals[int(folder.name)] = workspace.PROPOSAL.validate_json(file.read_bytes())
        return tuple(proposals[number] for number in sorted(proposals))

    def certificates(self) -> tuple[Certificate, ...]:
        """Every certificate, in order; those of other environments and budgets last."""
        every = [_read(CERTIFICATE, str(path)) for path in (self.path / "certificates").glob("*.json")]
        return tuple(sorted(every, key=lambda one: (one.elsewhere, one.environment, one.conditions.budget, one.look)))

    def own_certificates(self) -> tuple[Certificate, ...]:
        """Those of the campaign's own environment and budget."""
        return tuple(one for one in self.certificates() if not one.elsewhere)

    def ablation(self, champion: int) -> Ablation | None:
        path = self.path / "ablations" / f"{champion:04d}.json"
        return ABLATION.validate_json(path.read_bytes()) if path.is_file() else None

    def event(self, kind: str, **facts: object) -> None:
        line = {"time": round(time.time(), 3), "event": kind, "pid": os.getpid(), **facts}
        append_line(self.path / "events.jsonl", json.dumps(line))

    def cut_off(self) -> list[dict[str, Any]]:
        """The events since a process of this campaign last came to its end."""
        events = [*self.events()]
        return events[max((place for place, event in enumerate(events, 1) if event["event"] == "end"), default=0) :]

    def events(self) -> Iterator[dict[str, Any]]:
        file = self.path / "events.jsonl"
        if (size := file.stat().st_size if file.exists() else 0) != self._events[0]:
            self._events = size, [event for event in read_lines(file) if "event" in event]
        return iter(self._events[1])


def directory(number: int, attempt: int, part: str = "") -> str:
    again = f".{attempt}" if attempt > 1 else ""
    return f"{number:04d}{again}{f'-{part}' if part else ''}"


def decided_trial(folder: Path) -> Trial | None:
    """The trial of a folder; None if it is not decided."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return _read(workspace.TRIAL, f"{folder}/trial.json")
    return None


def _read(kind: TypeAdapter[T], path: str) -> T:
    """What a file holds; Refused if it is damaged."""
    try:
        return kind.validate_json(Path(path).read_bytes())
    except ValidationError as error:
        raise plugins.explain(error, path) from error


def frozen_elsewhere(campaign: Path, environment: str) -> Path:
    """The folder in which another environment is frozen with a campaign's certificates."""
    return campaign / "certificates" / f"on-{environment}"


def ended(ledger: Ledger, apart: Set[str] = frozenset()) -> dict[str, Any]:
    """The event that ended the last process of a campaign; empty while it runs, or if it was killed. Processes with a
    fact of `apart` take nothing back when they begin.
    """
    last: dict[str, Any] = {}
    for event in ledger.events():
        if event["event"] == "end":
            last = event
        elif event["event"] == "life" and not event.keys() & apart:
            last = {}
    return last


def ended_search(ledger: Ledger) -> dict[str, Any]:
    """The same of the search: a certificate or a rerun that is cut off takes nothing back of how that had ended."""
    return ended(ledger, {"certify", "rerun"})


def freeze(environment: Environment, path: Path) -> None:
    """Copy an environment's folder and its baseline program into a campaign's directory; Refused if too large."""
    content = [*environments.files(environment.folder)]
    size = sum(file.stat().st_size for file in content)
    if size > FREEZE_LIMIT:
        fact = f"{environment.folder} holds {size >> 20} MiB, and every campaign copies it"
        raise Refused(f"{fact} (limit {FREEZE_LIMIT >> 20} MiB): keep data elsewhere, and list its path under readable")
    for file in content:
        _copy(file, path / "environment" / file.relative_to(environment.folder))
    for source, name in environment.prepare.texts(environment.folder) if environment.prepare else ():
        if not (path / "environment" / name).exists():  # a helper
            _copy(source, path / "environment" / name)
    for source, name in workspace.baseline_files(environment):
        _copy(source, path / "program" / name)
    (path / "program").mkdir(exist_ok=True)
    (path / "trials").mkdir()


def measure(path: Path, environment: Environment, settings: dict[str, object]) -> str:
    frozen = {name: outputs.digest(path / name) for name in ("environment", "program")}
    return digest_of(json.dumps({**frozen, "judge": judge_digest(environment.judge), **settings}, sort_keys=True))


def judge_digest(judge: Judge) -> str:
    """SHA-256 of the judge's file, of the judges that it extends, of what judges share, and of the score."""
    classes = [each for each in type(judge).__mro__ if issubclass(each, Judge) and each is not Judge]
    own = [Path(inspect.getfile(each)) for each in classes]
    code = dict.fromkeys([*own, *sorted(own[0].parent.glob("_*.py")), Path(inspect.getfile(Score))])
    return hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that every user can read it and nobody writes it; the folders above it stay the owner's."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    shutil.copy2(source, target)
    target.chmod(target.stat().st_mode & 0o111 | 0o444)


@cache
def machine() -> str:
    """This machine in a word, with its NVIDIA GPUs: under a time budget, scores compare only on the same machine."""
    described = ""
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError):
            described += path.read_text()
    models = Counter(re.findall(r"^Model:\s*(.+?)\s*$", described, re.MULTILINE))
    cards = [f"{n}x-{re.sub(r'[^A-Za-z0-9.]+', '-', model)}" for model, n in sorted(models.items())]
    return "-".join([f"{platform.system()}-{platform.machine()}-{os.cpu_count()}cpu", *cards]).lower()
