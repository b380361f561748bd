"""Optuna studies: space, direction and trials of a study, read from its storage with Optuna's own API."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments import FILE
from environments.plugins import Refused
from environments.space import Value, is_finite
from tasks.importing import EarlierTrial, Imported, Importer, Recognised, Term, _runner, environment_toml
from tasks.importing.reading.optuna_storage import DIALECT, SQLITE_HEAD, parted, study_of
from tasks.importing.reading.parameters import ConvertedParameter, choice, number
from tasks.system.redact import without_passwords

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

MOST_TRIALS = 5_000
SLACK, SHORTEST, UNKNOWN = 3, 30, 600
"""The budget: so many times the longest finished trial, in seconds at least, and where none has finished."""


class OptunaStudy(Importer):
    """An Optuna study: the URL of its storage, an SQLite file or a journal; `#NAME` names one of several studies."""

    def recognise(self, place: str) -> Recognised:
        where, _ = parted(place)
        if DIALECT.match(where):
            return Recognised(True, "a storage URL")
        path = Path(where)
        if not path.is_file():
            return Recognised(False, "neither the URL of a database, such as sqlite:///study.db, nor a file")
        with path.open("rb") as file:
            head = file.read(4096)
        fits = head.startswith(SQLITE_HEAD) or b'"op_code"' in head.partition(b"\n")[0]
        kinds = "an SQLite database or a journal of Optuna's"
        return Recognised(fits, kinds if fits else f"not {kinds}")

    def convert(self, place: str) -> Imported:
        where, name = parted(place)
        return _imported(study_of(where, name), without_passwords(where))


def _imported(study: Study, where: str) -> Imported:
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    direction, names = study.directions[0], study.metric_names or ["value"]
    if direction == StudyDirection.NOT_SET:
        raise Refused(f"study {study.study_name!r} of {where} has no direction yet: run a trial of it first")
    metric, higher = _runner.metric_name(names[0]), direction == StudyDirection.MAXIMIZE
    finished = [one for one in trials if one.state == TrialState.COMPLETE and _value(one) is not None]
    best = (max if higher else min)(finished, key=lambda one: one.values[0], default=None)
    distributions = _distributions(trials)
    seeds = {name: (every[-1].low, every[-1].high) for name, every in distributions.items()  # type: ignore[attr-defined]
             if _runner.is_seed(name) and hasattr(every[-1], "low")}  # fmt: skip
    searched = {name: every for name, every in distributions.items() if name not in seeds}
    as_json = [name for name, every in searched.items() if not all(map(_is_plain, _choices(every)))]
    parameters = {
        name: _parameter(every, name in as_json, best.params.get(name) if best else None)
        for name, every in searched.items()
    }
    if not any(one.table for one in parameters.values()):
        raise Refused(
            f"study {study.study_name!r} of {where} has no trial with a parameter that varies: run some first"
        )
    took = [one.duration.total_seconds() for one in finished if one.duration]
    seconds = max(math.ceil(SLACK * max(took)), SHORTEST) if took else UNKNOWN
    history = tuple(_earlier(trials, as_json, seeds))
    fixed = {name: one.fixed for name, one in parameters.items() if not one.table}
    keys: dict[str, Any] = {
        **_runner.keys(study.study_name, metric, "maximize" if higher else "minimize", ""),
        "program": ["train.py", "run.json", "objective.py"], "editable": ["objective.py"],
        "train_cmd": f"python train.py {shlex.quote(metric)}", "budget_seconds": seconds,
        "space": {name: one.table for name, one in parameters.items() if one.table},
        **({"fixed": fixed} if fixed else {}),
    }  # fmt: skip
    return Imported(
        name=study.study_name,
        origin=f"the Optuna study {study.study_name!r} in {where}",
        files={
            FILE: environment_toml(
                keys, f"Imported from the Optuna study {study.study_name!r}; imported.md has the account."
            ),
            "train.py": _runner.program("optuna_train.py"),
            "run.json": json.dumps({"as_json": as_json, "seeds": seeds}, indent=1) + "\n",
            "objective.py": _runner.program("optuna_objective.py").replace("PARAMETERS", ", ".join(distributions)),
            "program.md": PROGRAM_MD.format(name=study.study_name, where=where, metric=metric, count=len(history)),
        },
        carried=(
            _runner.metric_term(names[0], metric, direction.name.lower()),
            *(Term(name, one.words) for name, one in parameters.items()),
            *(Term(name, "the seed of the run") for name in seeds),
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


def _distributions(trials: Sequence[FrozenTrial]) -> dict[str, list[BaseDistribution]]:
    """Every distribution that a parameter has had, the oldest first."""
    found: dict[str, list[BaseDistribution]] = {}
    for trial in trials:
        for name, one in trial.distributions.items():
            every = found.setdefault(name, [])
            if one not in every:
                every.append(one)
    return found


def _choices(every: Sequence[BaseDistribution]) -> list[Any]:
    return [value for one in every for value in getattr(one, "choices", ())]


def _is_plain(value: object) -> bool:
    return isinstance(value, Value) and is_finite(value)


def _parameter(every: Sequence[BaseDistribution], as_json: bool, default: object) -> ConvertedParameter:
    """One parameter over all of its distributions; the kind is that of the newest one."""
    from optuna.distributions import FloatDistribution, IntDistribution

    newest = every[-1]
    lost = f"it had {len(every)} ranges: the whole of them is searched" if len(every) > 1 else ""
    if not isinstance(newest, FloatDistribution | IntDistribution):
        values = [json.dumps(value, default=str) if as_json else value for value in _choices(every)]
        return choice(values, json.dumps(default, default=str) if as_json else default, lost)  # type: ignore[arg-type]
    ranges = [one for one in every if isinstance(one, FloatDistribution | IntDistribution)]
    low, high = min(one.low for one in ranges), max(one.high for one in ranges)
    whole = isinstance(newest, IntDistribution)
    return number(low, high, whole=whole, log=newest.log, step=newest.step, default=default, lost=lost)


def _value(trial: FrozenTrial) -> float | None:
    value = trial.values[0] if trial.values else None
    return value if value is not None and math.isfinite(value) else None


def _earlier(
    trials: Sequence[FrozenTrial], as_json: Sequence[str], seeds: Mapping[str, object]
) -> Iterator[EarlierTrial]:
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

    pruned = sum(one.state == TrialState.PRUNED for one in trials)
    open_ones = sum(one.state in (TrialState.RUNNING, TrialState.WAITING) for one in trials)
    if pruned:
        yield Term(f"{pruned} pruned trials", "left out: what they last reported is no final value")
    if open_ones:
        yield Term(f"{open_ones} trials running or waiting", "left out: they have no value")


def _other_values(study: Study) -> Iterator[Term]:
    for place, direction in enumerate(study.directions[1:], 2):
        name = (study.metric_names or [])[place - 1 : place] or [f"value {place}"]
        guard = f'a guard by [guards.value_{place}] direction = "{direction.name.lower()}"'
        yield Term(f"objective {name[0]}", f"a figure value_{place} beside the score; {guard}")


NOT_STORED = (
    Term("the objective function", "no storage has it: put it into objective.py"),
    Term("sampler, pruner", "no storage has them: --proposer (tpe by default) and --cancel"),
    Term("attributes of the study and of trials", "left out: nothing here reads them"),
)
WARNINGS = (
    "objective.py is a placeholder: put your objective(trial) there, with what it imports; until then every trial is a "
    "crash that says so",
    _runner.warning("objective.py", "the value that it returns"),
    "an objective with a fixed random_state gives one value under every seed: state deterministic = true in "
    "environment.toml then, or no noise is seen where there is some on other data",
)
PROGRAM_MD = """\
# {name}

Imported from an Optuna study ({where}). objective.py has the function `objective(trial)`; it is called once per trial
with the parameters of the trial and returns `{metric}`.

The study has {count} finished or failed trials, which are imported: proposers know them, nothing compares with them.
"""
