"""Optuna studies: space, direction and trials of a study, read from its storage with Optuna's own API."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from environments.earlier_trials import MOST
from environments.plugins import Refused
from environments.space import Value
from tasks.importing import EarlierTrial, Imported, Importer, Term, _runner
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import ConvertedParameter, choice, is_plain, is_seed, number, sections
from tasks.system.redact import without_passwords

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

DIALECT = re.compile(r"(sqlite|postgresql|mysql|mariadb|oracle|mssql)(\+\w+)?://")
SQLITE, SQLITE_HEAD = "sqlite:///", b"SQLite format 3\0"
SLACK, SHORTEST, UNKNOWN = 3, 30, 600
"""The budget: so many times the longest finished trial, in seconds at least, and where none has finished."""
OBJECTIVE = '''\
"""The place of your objective: put the function that your study optimised here, and beside it what it imports."""


def objective(trial):
    """Of {parameters}."""
    raise SystemExit("objective.py is still the placeholder of `nightshift env import`: put your objective there")
'''
NOT_STORED = (
    Term("the objective function", f"no storage has it: put it into {REPOSITORY}/objective.py"),
    Term("sampler, pruner", "no storage has them: --proposer (tpe by default) and --cancel"),
)
WARNINGS = (
    f"{REPOSITORY}/objective.py is a placeholder: put your objective(trial) there, with what it imports",
    _runner.warning("objective.py", "the value that it returns"),
    "an objective with a fixed random_state gives one value under every seed: state deterministic = true then",
)


class OptunaStudy(Importer):
    """An Optuna study: the URL of its storage, an SQLite file or a journal; `#NAME` names one of several studies."""

    def why_not(self, place: str) -> str:
        where, _ = _parted(place)
        if DIALECT.match(where):
            return ""
        if not Path(where).is_file():
            return "neither the URL of a database, such as sqlite:///study.db, nor a file"
        head = _head(where)
        fits = head.startswith(SQLITE_HEAD) or b'"op_code"' in head.partition(b"\n")[0]
        return "" if fits else "neither an SQLite database nor a journal of Optuna's"

    def convert(self, place: str) -> Imported:
        where, name = _parted(place)
        return StoredStudy(_study(where, name), without_passwords(where)).imported()


def best_first(place: str) -> list[FrozenTrial]:
    """The finished trials of a study, by their value. Refused if it cannot be read, or none is finished."""
    study = _study(*_parted(place))
    if not (trials := _best_first(study)):
        raise Refused(f"{without_passwords(place)}: study {study.study_name!r} has no finished trial")
    return trials


def _parted(place: str) -> tuple[str, str]:
    """A storage and the name of a study in it, which may be empty."""
    where, _, name = place.partition("#")
    return (place, "") if Path(place).exists() else (where, name)


def _head(file: str) -> bytes:
    with Path(file).open("rb") as opened:
        return opened.read(4096)


def _storage(where: str) -> BaseStorage:
    """The storage, opened so that nothing is written to it."""
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    is_url = DIALECT.match(where) is not None
    if is_url and not where.startswith(SQLITE):
        return RDBStorage(where, skip_table_creation=True)
    if not is_url and not _head(where).startswith(SQLITE_HEAD):
        return JournalStorage(JournalFileBackend(where))
    path = Path(where.removeprefix(SQLITE).partition("?")[0]).resolve()
    return RDBStorage(f"{SQLITE}file:{quote(str(path))}?mode=ro&uri=true", skip_table_creation=True)


def _study(where: str, name: str) -> Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    shown = without_passwords(where)
    try:
        storage = _storage(where)
        names = [one.study_name for one in storage.get_all_studies()]
    except Exception as broken:  # a driver that is missing, a server that is away, a schema of another version
        said = without_passwords(str(broken)).partition("\n")[0]
        raise Refused(f"{shown}: Optuna cannot read it: {type(broken).__name__}: {said[:300]}") from broken
    if name not in names and (name or len(names) != 1):
        which = f"no study {name!r}" if name else f"{len(names)} studies"
        raise Refused(f"{shown} holds {which}: name one, as in {shown}#NAME. It has {', '.join(names[:20]) or 'none'}")
    return optuna.load_study(study_name=name or names[0], storage=storage)


class StoredStudy:
    """A study with its trials."""

    def __init__(self, study: Study, where: str) -> None:
        self.study, self.name, self.where = study, study.study_name, where
        self.direction = study.directions[0].name.lower()
        self.trials = study.get_trials(deepcopy=False)
        self.finished = _best_first(study)
        self.distributions: dict[str, list[BaseDistribution]] = {}
        for trial in self.trials:
            for name, one in trial.distributions.items():
                self.distributions.setdefault(name, []).append(one)
        self.seeds = [name for name in self.distributions if is_seed(name)]
        self.as_json = [name for name in self.distributions if not all(map(is_plain, self._choices(name)))]
        self.space = {name: self._parameter(name) for name in self.distributions if name not in self.seeds}
        if not any(one.table for one in self.space.values()):
            raise Refused(f"study {self.name!r} of {where} has no trial with a parameter that varies: run some first")

    def _choices(self, name: str) -> list[Any]:
        return [value for one in self.distributions[name] for value in getattr(one, "choices", ())]

    def _shown(self, name: str, value: Any) -> Value:
        return json.dumps(value, default=str) if name in self.as_json else value

    def _parameter(self, name: str) -> ConvertedParameter:
        """One parameter over all of its distributions; the kind is that of the newest one."""
        from optuna.distributions import FloatDistribution, IntDistribution

        every, default = self.distributions[name], self.finished[0].params.get(name) if self.finished else None
        newest = every[-1]
        if not isinstance(newest, FloatDistribution | IntDistribution):
            return choice([self._shown(name, value) for value in self._choices(name)], self._shown(name, default))
        ranges = [one for one in every if isinstance(one, FloatDistribution | IntDistribution)]
        low, high = min(one.low for one in ranges), max(one.high for one in ranges)
        lost = "" if (low, high) == (newest.low, newest.high) else "it had several ranges: all of them are searched"
        whole = isinstance(newest, IntDistribution)
        return number(low, high, whole=whole, log=newest.log, step=newest.step, default=default, lost=lost)

    def _earlier(self) -> Iterator[EarlierTrial]:
        """Finished and failed trials; of others there is no value that compares."""
        ended = [trial for trial in self.trials if trial.params and trial.state.name in ("COMPLETE", "FAIL")]
        for trial in ended[-MOST:]:
            params = {name: self._shown(name, one) for name, one in trial.params.items() if name not in self.seeds}
            yield EarlierTrial(params, _value(trial), f"Optuna's trial {trial.number}")

    def _lost(self) -> Iterator[Term]:
        for name, one in self.space.items():
            if one.lost:
                yield Term(name, one.lost)
            if not all(name in trial.params for trial in self.finished):
                yield Term(f"{name}, conditional", "not in every trial there: here every trial has a value")
        if pruned := sum(trial.state.name == "PRUNED" for trial in self.trials):
            yield Term(f"{pruned} pruned trials", "left out: what they last reported is no final value")
        for place, direction in enumerate(self.study.directions[1:], 2):
            guard = f'a guard by [guards.value_{place}] direction = "{direction.name.lower()}"'
            yield Term(f"objective {place}", f"a figure value_{place} beside the score; {guard}")

    def imported(self) -> Imported:
        theirs = (self.study.metric_names or ["value"])[0]
        took = [trial.duration.total_seconds() for trial in self.finished if trial.duration]
        seconds = max(math.ceil(SLACK * max(took)), SHORTEST) if took else UNKNOWN
        return _runner.imported(
            self.name, f"the Optuna study {self.name!r} in {self.where}", "objective.py",
            f"`objective(trial)` is called once per trial with its parameters, and returns `{theirs}`.\n",
            program=Path("objective.py"),
            metric=theirs,
            how={"command": ["${interpreter}", "-m", "optuna_call", theirs], "as_json": self.as_json},
            keys={"direction": self.direction, "budget_seconds": seconds, **sections(self.space)},
            originals={f"{REPOSITORY}/objective.py": OBJECTIVE.format(parameters=", ".join(self.distributions))},
            seeds=self.seeds,
            stand_ins=["optuna_call"],
            left=(*self._lost(), *NOT_STORED),
            warnings=WARNINGS,
            history=tuple(self._earlier()),
        )  # fmt: skip


def _best_first(study: Study) -> list[FrozenTrial]:
    """The finished trials, by their value."""
    finished = [trial for trial in study.get_trials(deepcopy=False) if _value(trial) is not None]
    return sorted(finished, key=lambda trial: trial.values[0], reverse=study.directions[0].name == "MAXIMIZE")


def _value(trial: FrozenTrial) -> float | None:
    """The score of a finished trial; None of any other."""
    value = trial.values[0] if trial.state.name == "COMPLETE" else math.nan
    return value if math.isfinite(value) else None
