"""Optuna studies: space, direction and trials of a study, read from its storage with Optuna's own API."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from environments import earlier_trials
from environments.earlier_trials import EarlierTrial
from environments.plugins import Refused
from tasks.importing import Imported, Term, _runner
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import ConvertedParameter, choice, held, is_seed, number
from tasks.system.redact import without_passwords

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

SQLITE = "sqlite:///"
SLACK, SHORTEST = 3, 30
"""The budget: so many times the longest finished trial, and in seconds at least."""
OBJECTIVE = '''\
"""The place of your objective: put the function that your study optimised here, and beside it what it imports."""


def objective(trial):
    """Of {parameters}."""
    raise SystemExit("objective.py is still the placeholder of `nightshift env import`: put your objective there")
'''
PLACEHOLDER = f"{REPOSITORY}/objective.py is a placeholder: put your objective(trial) there, with what it imports"


def read(place: str) -> Imported | str:
    """An Optuna study: the URL of its storage, an SQLite file or a journal; `#NAME` names one of several studies."""
    where = _parted(place)[0]
    if "://" not in where and not _head(where).startswith((b"SQLite format 3", b'{"op_code"')):
        return "neither the URL of a database (sqlite:///study.db) nor an SQLite file or journal of Optuna's"
    study, finished = best_first(place)
    trials, shown_place = study.get_trials(deepcopy=False), without_passwords(where)
    distributions = {name: one for trial in trials for name, one in trial.distributions.items()}  # the newest each
    best = finished[0].params if finished else {}
    parameters = {name: _parameter(one, best.get(name)) for name, one in distributions.items()}
    left = [Term("sampler, pruner", "no storage has them: --proposer (tpe by default) and --cancel")]
    for name in parameters:
        if not all(name in trial.params for trial in finished):
            left.append(Term(f"{name}, conditional", "not in every trial there: here every trial has a value"))
    if pruned := sum(trial.state.name == "PRUNED" for trial in trials):
        left.append(Term(f"{pruned} pruned trials", "left out: what they last reported is no final value"))
    if others := [f"value_{at}" for at in range(2, len(study.directions) + 1)]:
        left.append(Term("further objectives", f"figures beside the score, for [guards]: {', '.join(others)}"))
    metric = (study.metric_names or ["value"])[0]
    took = [trial.duration.total_seconds() for trial in finished if trial.duration]
    budget = {"budget_seconds": max(math.ceil(SLACK * max(took)), SHORTEST)} if took else {}
    earlier = [
        EarlierTrial(
            params={name: held(one) for name, one in trial.params.items() if not is_seed(name)},
            score=_value(trial), note=f"Optuna's trial {trial.number}",
        )
        for trial in trials if trial.params and trial.state.name in ("COMPLETE", "FAIL")
    ]  # fmt: skip
    return _runner.imported(
        study.study_name, f"the Optuna study {study.study_name!r} in {shown_place}", "objective.py",
        f"`objective(trial)` is called once per trial with its parameters, and returns `{metric}`.\n",
        program=Path("objective.py"),
        metric=metric,
        how={"command": ["${interpreter}", "-m", "optuna_call", metric]},
        keys={"direction": study.directions[0].name.lower(), **budget},
        originals={
            f"{REPOSITORY}/objective.py": OBJECTIVE.format(parameters=", ".join(distributions)),
            earlier_trials.FILE: "".join(f"{one.model_dump_json()}\n" for one in earlier[-earlier_trials.MOST :]),
        },
        parameters=parameters,
        stand_ins=["optuna_call"],
        left=left,
        warnings=[PLACEHOLDER],
    )  # fmt: skip


def best_first(place: str) -> tuple[Study, list[FrozenTrial]]:
    """A study, and its finished trials by their value. Refused if it cannot be read."""
    study = _study(place)
    finished = [trial for trial in study.get_trials(deepcopy=False) if _value(trial) is not None]
    return study, sorted(finished, key=lambda trial: trial.values[0], reverse=study.directions[0].name == "MAXIMIZE")


def _parted(place: str) -> tuple[str, str]:
    """A storage and the name of a study in it, which may be empty."""
    storage, _, name = place.partition("#")
    return (place, "") if Path(place).exists() else (storage, name)


def _head(storage: str) -> bytes:
    """The first bytes of a file; none of what is no file."""
    if not Path(storage).is_file():
        return b""
    with Path(storage).open("rb") as opened:
        return opened.read(16)


def _study(place: str) -> Study:
    """A study of a storage that is opened so that nothing is written to it."""
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    where, name = _parted(place)
    url, is_journal = where, _head(where).startswith(b"{")
    if "://" not in where or where.startswith(SQLITE):
        path = Path(where.removeprefix(SQLITE).partition("?")[0]).resolve()
        url = f"{SQLITE}file:{quote(str(path))}?mode=ro&uri=true"
    try:
        storage = JournalStorage(JournalFileBackend(where)) if is_journal else RDBStorage(url, skip_table_creation=True)
        names = [one.study_name for one in storage.get_all_studies()]
    except Exception as broken:  # a driver that is missing, a server that is away, a schema of another version
        said = without_passwords(str(broken)).partition("\n")[0]
        raise Refused(
            f"{without_passwords(where)}: Optuna cannot read it: {type(broken).__name__}: {said[:300]}"
        ) from broken
    if name not in names and (name or len(names) != 1):
        listed = ", ".join(names[:20]) or "none"
        raise Refused(f"{without_passwords(where)}: name one of its studies, behind #: {listed}")
    return optuna.load_study(study_name=name or names[0], storage=storage)


def _parameter(one: BaseDistribution, default: object) -> ConvertedParameter:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(one, CategoricalDistribution):
        return choice(one.choices, default)
    assert isinstance(one, FloatDistribution | IntDistribution), "Optuna has no others"
    is_int = isinstance(one, IntDistribution)
    return number(one.low, one.high, whole=is_int, log=one.log, step=one.step, default=default)


def _value(trial: FrozenTrial) -> float | None:
    """The score of a finished trial; None of any other."""
    value = trial.values[0] if trial.state.name == "COMPLETE" else math.nan
    return value if math.isfinite(value) else None
