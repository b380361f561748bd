"""Optuna studies: space, direction and trials of a study, read from its storage with Optuna's own API."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments import FILE
from environments.plugins import Refused
from environments.space import Value, is_finite
from tasks.importing import EarlierTrial, Imported, Importer, Recognised, Term, environment_toml
from tasks.importing.reading.optuna_storage import DIALECT, SQLITE_HEAD, STUDIES, is_journal, parted, study_of, tables
from tasks.importing.reading.parameters import ConvertedParameter, choice, metric_name, number
from tasks.importing.reading.programs import program
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
        if head.startswith(SQLITE_HEAD):
            held = tables(path)
            return Recognised(held == STUDIES, held)
        fits = is_journal(head)
        return Recognised(fits, "a journal of Optuna's" if fits else "neither an SQLite database nor an Optuna journal")

    def convert(self, place: str) -> Imported:
        where, name = parted(place)
        return _imported(study_of(where, name), without_passwords(where))


def _imported(study: Study, where: str) -> Imported:
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    direction, names = study.directions[0], study.metric_names or []
    if direction == StudyDirection.NOT_SET:
        raise Refused(f"study {study.study_name!r} of {where} has no direction yet: run a trial of it first")
    metric, higher = metric_name(names[0] if names else "value"), direction == StudyDirection.MAXIMIZE
    finished = [one for one in trials if one.state == TrialState.COMPLETE and _value(one) is not None]
    best = (max if higher else min)(finished, key=lambda one: one.values[0], default=None)
    carried, left, space, fixed = [], [], {}, {}
    for name, every in _distributions(trials).items():
        found = _parameter(every, best.params.get(name) if best else None)
        where_set = sum(name in one.params for one in finished)
        carried.append(Term(name, found.words))
        left += [Term(name, found.lost)] if found.lost else []
        if where_set < len(finished):
            only = f"set in {where_set} of {len(finished)} finished trials: here every trial has a value for it"
            left.append(Term(f"{name}, conditional", only))
        if found.table:
            space[name] = found.table
        else:
            fixed[name] = found.fixed
    if not space:
        raise Refused(
            f"study {study.study_name!r} of {where} has no trial with a parameter that varies: run some first"
        )
    seconds = _budget(finished)
    history = tuple(_earlier(trials))
    of_best = "the baseline" if best else "none has finished: the baseline has the middle of each range"
    of_time = "three times the longest, 30 s at least" if finished else "a guess, since none has finished"
    carried = [
        Term(direction.name.lower(), f"direction, of the metric {metric}"),
        *carried,
        Term(f"best trial, {best.number}" if best else "best trial", of_best),
        Term(f"{len(trials)} trials", f"{len(history)} earlier trials in history.jsonl, for proposers"),
        Term("time of a trial", f"budget_seconds = {seconds}: {of_time}"),
    ]
    left += [*_states(trials), *_other_values(study), *NOT_STORED]
    keys: dict[str, Any] = {
        "title": study.study_name, "metric": metric, "direction": "maximize" if higher else "minimize",
        "budget_seconds": seconds, "trainer": "command", "program": ["train.py", "objective.py"],
        "editable": ["objective.py"], "train_cmd": f"python train.py {shlex.quote(metric)}", "judge": "command",
        "command": {"eval_cmd": "python judge.py {out} {result}"}, "space": space,
    }  # fmt: skip
    if fixed:
        keys["fixed"] = fixed
    files: dict[str, str | Path] = {
        FILE: environment_toml(
            keys, f"Imported from the Optuna study {study.study_name!r}; imported.md has the account."
        ),
        "train.py": program("optuna_train.py"),
        "objective.py": program("optuna_objective.py").replace("    # PARAMETERS\n", "".join(_suggestions(trials))),
        "judge.py": program("returned_value.py"),
        "program.md": PROGRAM_MD.format(name=study.study_name, where=where, metric=metric, count=len(history)),
    }
    return Imported(
        name=study.study_name, origin=f"the Optuna study {study.study_name!r} in {where}", files=files,
        carried=tuple(carried), left=tuple(left), warnings=WARNINGS, history=history,
    )  # fmt: skip


def _distributions(trials: Sequence[FrozenTrial]) -> dict[str, list[BaseDistribution]]:
    """Every distribution that a parameter has had, the oldest first."""
    found: dict[str, list[BaseDistribution]] = {}
    for trial in trials:
        for name, one in trial.distributions.items():
            every = found.setdefault(name, [])
            if one not in every:
                every.append(one)
    return found


def _parameter(every: Sequence[BaseDistribution], default: object) -> ConvertedParameter:
    """One parameter over all of its distributions; the kind is that of the newest one."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    newest = every[-1]
    alike = [one for one in every if type(one) is type(newest)]
    lost = f"it had {len(every)} ranges: the whole of them is searched" if len(every) > 1 else ""
    if isinstance(newest, CategoricalDistribution):
        values = [value for one in alike if isinstance(one, CategoricalDistribution) for value in one.choices]
        plain = [value for value in values if isinstance(value, Value) and is_finite(value)]
        if len(plain) < len(values):
            odd = ", ".join(dict.fromkeys(repr(value) for value in values if value not in plain))
            lost = "; ".join(filter(None, [lost, f"{odd}: a value is a number, a text or a boolean"]))
        return choice(plain, default if isinstance(default, Value) else None, lost)
    assert isinstance(newest, FloatDistribution | IntDistribution)
    ranges = [one for one in alike if isinstance(one, FloatDistribution | IntDistribution)]
    low, high = min(one.low for one in ranges), max(one.high for one in ranges)
    whole = isinstance(newest, IntDistribution)
    return number(low, high, whole=whole, log=newest.log, step=newest.step, default=default, lost=lost)


def _suggestions(trials: Sequence[FrozenTrial]) -> Iterator[str]:
    """The calls by which an objective asks for the study's parameters, a line each."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    for name, every in _distributions(trials).items():
        one = every[-1]
        if isinstance(one, CategoricalDistribution):
            call = f"suggest_categorical({name!r}, {list(one.choices)!r})"
        else:
            assert isinstance(one, FloatDistribution | IntDistribution)
            more = ", log=True" * one.log + f", step={one.step!r}" * (one.step not in (None, 1))
            kind = "float" if isinstance(one, FloatDistribution) else "int"
            call = f"suggest_{kind}({name!r}, {one.low!r}, {one.high!r}{more})"
        yield f"    trial.{call}\n"


def _value(trial: FrozenTrial) -> float | None:
    value = trial.values[0] if trial.values else None
    return value if value is not None and math.isfinite(value) else None


def _earlier(trials: Sequence[FrozenTrial]) -> Iterator[EarlierTrial]:
    """Finished and failed trials; of others there is no value that compares."""
    from optuna.trial import TrialState

    told = [one for one in trials if one.state in (TrialState.COMPLETE, TrialState.FAIL) and one.params]
    for one in told[-MOST_TRIALS:]:
        params = {name: value for name, value in one.params.items() if isinstance(value, Value) and is_finite(value)}
        score = _value(one) if one.state == TrialState.COMPLETE else None
        yield EarlierTrial(params, score, f"Optuna's trial {one.number}" + (": it failed" if score is None else ""))


def _budget(finished: Sequence[FrozenTrial]) -> int:
    took = [one.duration.total_seconds() for one in finished if one.duration]
    return max(math.ceil(SLACK * max(took)), SHORTEST) if took else UNKNOWN


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
        names = study.metric_names or ()
        called = names[place - 1] if len(names) >= place else f"value {place}"
        way = f'direction = "{direction.name.lower()}"'
        yield Term(
            f"objective {called}", f"a figure value_{place} beside the score; a guard by [guards.value_{place}] {way}"
        )


NOT_STORED = (
    Term("the objective function", "no storage has it: put it into objective.py"),
    Term("sampler, pruner", "no storage has them: --proposer (tpe by default) and --cancel"),
    Term("attributes of the study and of trials", "left out: nothing here reads them"),
)
WARNINGS = (
    "objective.py is a placeholder: put your objective(trial) there, with what it imports; until then every trial is a "
    "crash that says so",
    "the score is what objective() returns, so it comes from the program that is scored. With parameters alone that is "
    "your own code. Before you let code be edited (--proposer llm_diff, agent), let objective.py save its model into "
    "the folder `out` of config.json and measure it in judge.py, which is frozen",
    "an objective with a fixed random_state gives one value under every seed: state deterministic = true in "
    "environment.toml then, or no noise is seen where there is some on other data",
)
PROGRAM_MD = """\
# {name}

Imported from an Optuna study ({where}). objective.py has the function `objective(trial)`; it is called once per trial
with the parameters of the trial and returns `{metric}`.

The study has {count} finished or failed trials, which are imported: proposers know them, nothing compares with them.
"""
