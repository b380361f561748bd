"""Optuna studies: space, direction and trials of a study, read from its storage with Optuna's own API."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from environments import FILE
from environments.plugins import Refused
from tasks.importing import EarlierTrial, Imported, Importer, Term, _runner, environment_toml
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import ConvertedParameter, choice, is_plain, is_seed, number, sections
from tasks.system.redact import without_passwords

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

DIALECT = re.compile(r"(sqlite|postgresql|mysql|mariadb|oracle|mssql)(\+\w+)?://")
SQLITE, SQLITE_HEAD = re.compile(r"sqlite(\+\w+)?:///([^?]*)"), b"SQLite format 3\0"
MOST_TRIALS = 5_000
SLACK, SHORTEST, UNKNOWN = 3, 30, 600
"""The budget: so many times the longest finished trial, in seconds at least, and where none has finished."""
OBJECTIVE = '''\
"""The place of your objective: put the function that your study optimised here, with the modules that it imports.

A study's storage holds parameters and values, and no code. Files that this one imports go beside it.
"""


def objective(trial):
    """Of {parameters}."""
    raise SystemExit("objective.py is still the placeholder of `nightshift env import`: put your objective there")
'''
NOT_STORED = (
    Term("the objective function", f"no storage has it: put it into {REPOSITORY}/objective.py"),
    Term("sampler, pruner", "no storage has them: --proposer (tpe by default) and --cancel"),
)
WARNINGS = (
    f"{REPOSITORY}/objective.py is a placeholder: put your objective(trial) there, with what it imports; until then "
    "every trial is a crash that says so",
    _runner.warning("objective.py", "the value that it returns"),
    "an objective with a fixed random_state gives one value under every seed: state deterministic = true in "
    "environment.toml then, or no noise is seen where there is some on other data",
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
        return _imported(_study(where, name), without_passwords(where))


def best_first(place: str) -> list[FrozenTrial]:
    """The finished trials of a study, by their value. Refused if it cannot be read, or none is finished."""
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    study = _study(*_parted(place))
    finished = [one for one in study.get_trials(states=[TrialState.COMPLETE]) if _value(one) is not None]
    if not finished:
        raise Refused(f"{without_passwords(place)}: study {study.study_name!r} has no finished trial")
    return sorted(finished, key=lambda one: one.values[0], reverse=study.directions[0] == StudyDirection.MAXIMIZE)


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

    url = SQLITE.match(where)
    if DIALECT.match(where) and not url:
        return RDBStorage(where, skip_table_creation=True)
    path = Path(url[2] if url else where)
    if not path.is_file():
        raise Refused(f"there is no {path}: give the path of an SQLite file, or a storage URL")
    if not url and not _head(where).startswith(SQLITE_HEAD):
        return JournalStorage(JournalFileBackend(where))
    return RDBStorage(f"sqlite:///file:{quote(str(path.resolve()))}?mode=ro&uri=true", skip_table_creation=True)


def _study(where: str, name: str) -> Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    shown = without_passwords(where)
    try:
        storage = _storage(where)
        names = [one.study_name for one in storage.get_all_studies()]
    except Refused:
        raise
    except Exception as broken:  # of a driver that is missing, a server that is away, a schema of another version
        said = without_passwords(str(broken)).partition("\n")[0]
        raise Refused(f"{shown}: Optuna cannot read it: {type(broken).__name__}: {said[:300]}") from broken
    if name not in names and (name or len(names) != 1):
        which = f"no study {name!r}" if name else f"{len(names)} studies"
        raise Refused(f"{shown} holds {which}: name one, as in {shown}#NAME. It has {', '.join(names[:20]) or 'none'}")
    return optuna.load_study(study_name=name or names[0], storage=storage)


def _imported(study: Study, where: str) -> Imported:
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    trials, name = study.get_trials(deepcopy=False), study.study_name
    direction, names = study.directions[0], study.metric_names or ["value"]
    if direction == StudyDirection.NOT_SET:
        raise Refused(f"study {name!r} of {where} has no direction yet: run a trial of it first")
    metric, higher = _runner.metric_name(names[0]), direction == StudyDirection.MAXIMIZE
    finished = [one for one in trials if one.state == TrialState.COMPLETE and _value(one) is not None]
    best = (max if higher else min)(finished, key=lambda one: one.values[0], default=None)
    distributions: dict[str, list[BaseDistribution]] = {}
    for trial in trials:
        for parameter, one in trial.distributions.items():
            distributions.setdefault(parameter, []).append(one)
    seeds = [parameter for parameter in distributions if is_seed(parameter)]
    searched = {parameter: every for parameter, every in distributions.items() if parameter not in seeds}
    as_json = [parameter for parameter, every in searched.items() if not all(map(is_plain, _choices(every)))]
    parameters = {
        parameter: _parameter(every, parameter in as_json, best.params.get(parameter) if best else None)
        for parameter, every in searched.items()
    }
    if not any(one.table for one in parameters.values()):
        raise Refused(f"study {name!r} of {where} has no trial with a parameter that varies: run some first")
    took = [one.duration.total_seconds() for one in finished if one.duration]
    seconds = max(math.ceil(SLACK * max(took)), SHORTEST) if took else UNKNOWN
    history = tuple(_earlier(trials, as_json, seeds))
    origin = f"the Optuna study {name!r} in {where}"
    how = {
        "command": ["${interpreter}", "-m", "optuna_call", metric], "metric": metric, "name": metric,
        "own": dict.fromkeys(seeds, "seed"), "as_json": as_json,
    }  # fmt: skip
    keys = {
        **_runner.keys(name, metric, "maximize" if higher else "minimize", "objective.py"),
        "budget_seconds": seconds,
        **sections(parameters),
    }
    said = (
        "objective.py has the function `objective(trial)`; it is called once per trial with its parameters and returns "
        f"`{metric}`. {len(history)} trials of the study are imported: proposers know them, nothing compares with "
        "them.\n"
    )
    return Imported(
        name=name,
        origin=origin,
        files={
            FILE: environment_toml(keys, origin),
            **_runner.files(how, "optuna_call"),
            f"{REPOSITORY}/objective.py": OBJECTIVE.format(parameters=", ".join(distributions)),
            **_runner.instructions(name, origin, "objective.py", said),
        },
        carried=(
            _runner.metric_term(names[0], metric, direction.name.lower()),
            *(Term(seed, "the seed of the run") for seed in seeds),
            Term(
                f"best trial, {best.number}" if best else "best trial",
                "the baseline" if best else "none has finished: the baseline has the middle of each range",
            ),
            Term(f"{len(trials)} trials", f"{len(history)} earlier trials in history.jsonl, for proposers"),
            Term("time of a trial", f"budget_seconds = {seconds}: three times the longest, {SHORTEST} s at least"),
        ),
        left=(*_lost(parameters, finished), *_states(trials), *_other_values(study), *NOT_STORED),
        warnings=WARNINGS,
        history=history,
    )


def _choices(every: Sequence[BaseDistribution]) -> list[Any]:
    return [value for one in every for value in getattr(one, "choices", ())]


def _parameter(every: Sequence[BaseDistribution], as_json: bool, default: object) -> ConvertedParameter:
    """One parameter over all of its distributions; the kind is that of the newest one."""
    from optuna.distributions import FloatDistribution, IntDistribution

    newest = every[-1]
    if not isinstance(newest, FloatDistribution | IntDistribution):
        values = [json.dumps(value, default=str) if as_json else value for value in _choices(every)]
        return choice(values, json.dumps(default, default=str) if as_json else default)
    ranges = [one for one in every if isinstance(one, FloatDistribution | IntDistribution)]
    low, high = min(one.low for one in ranges), max(one.high for one in ranges)
    lost = "" if (low, high) == (newest.low, newest.high) else "it had several ranges: the whole of them is searched"
    whole = isinstance(newest, IntDistribution)
    return number(low, high, whole=whole, log=newest.log, step=newest.step, default=default, lost=lost)


def _value(trial: FrozenTrial) -> float | None:
    value = trial.values[0] if trial.values else None
    return value if value is not None and math.isfinite(value) else None


def _earlier(trials: Sequence[FrozenTrial], as_json: Sequence[str], seeds: Sequence[str]) -> Iterator[EarlierTrial]:
    """Finished and failed trials; of others there is no value that compares."""
    from optuna.trial import TrialState

    told = [one for one in trials if one.state in (TrialState.COMPLETE, TrialState.FAIL) and one.params]
    for one in told[-MOST_TRIALS:]:
        params = {
            name: json.dumps(value, default=str) if name in as_json else value
            for name, value in one.params.items()
            if name not in seeds
        }
        score = _value(one) if one.state == TrialState.COMPLETE else None
        yield EarlierTrial(params, score, f"Optuna's trial {one.number}" + (": it failed" if score is None else ""))


def _lost(parameters: Mapping[str, ConvertedParameter], finished: Sequence[FrozenTrial]) -> Iterator[Term]:
    for name, one in parameters.items():
        if one.lost:
            yield Term(name, one.lost)
        if (where_set := sum(name in trial.params for trial in finished)) < len(finished):
            only = f"set in {where_set} of {len(finished)} finished trials: here every trial has a value for it"
            yield Term(f"{name}, conditional", only)


def _states(trials: Sequence[FrozenTrial]) -> Iterator[Term]:
    from optuna.trial import TrialState

    if pruned := sum(one.state == TrialState.PRUNED for one in trials):
        yield Term(f"{pruned} pruned trials", "left out: what they last reported is no final value")
    if open_ones := sum(one.state in (TrialState.RUNNING, TrialState.WAITING) for one in trials):
        yield Term(f"{open_ones} trials running or waiting", "left out: they have no value")


def _other_values(study: Study) -> Iterator[Term]:
    for place, direction in enumerate(study.directions[1:], 2):
        name = (study.metric_names or [])[place - 1 : place] or [f"value {place}"]
        guard = f'a guard by [guards.value_{place}] direction = "{direction.name.lower()}"'
        yield Term(f"objective {name[0]}", f"a figure value_{place} beside the score; {guard}")
