"""A config.yaml of epappas/autoresearch-rl: its commands run unchanged, with their AR_ variables and emit_progress."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments import FILE
from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _results_tsv, _runner, environment_toml
from tasks.importing._original import REPOSITORY, Table
from tasks.importing._parameters import choice, is_plain, is_seed, sections

CONFIG = "config.yaml"
ORIGIN = "a configuration of epappas/autoresearch-rl"
CONTAINER = "/app/"
"""Where a container has the folder of the configuration."""
STEPS = 1000
"""Budget of steps where a program reports step and step_target: parts of its own target."""
PROPOSERS = {
    "static": "random_search", "grid": "grid", "random": "random_search", "learned": "learned", "llm": "llm",
    "llm_ensemble": "llm", "llm_diff": "llm_diff", "hybrid": "hybrid",
}  # fmt: skip
REASONS = {
    "target.basilica": "trials run on this machine, or where a work pool says: docs/other-machines.md",
    "telemetry": "a campaign has its own files, MLflow and report",
    "comparability": "runs under other conditions are never compared here",
    "scoring": "the score is the objective alone",
    "policy": "proposers have options of their own: docs/proposers.md",
    "controller": "a campaign has options of its own: docs/options.md",
}
"""Why a key, or all those below it, is not carried."""
EVAL_CMD = (
    "for a judge that no edit changes, let training save its model in AR_MODEL_DIR, set eval_cmd to another program "
    "that measures it there, and import again"
)


@dataclass(frozen=True)
class Config:
    """A configuration, as far as it is carried."""

    table: Table
    name: str
    metric: str
    direction: str
    workdir: Path
    instructions: str
    """The text of its program.md."""
    prepare: list[str]
    train: list[str]
    evaluate: list[str]
    """The command of a judge of its own; empty where it is that of training, or around the file that is edited."""
    seconds: float
    gpus: int | None
    params: dict[str, list[Any]]
    mutable: str
    """The file that is edited, below `workdir`; empty: none is."""
    calls: list[str]
    """Calls that an edit has to keep."""
    options: tuple[str, ...]
    ledger: Path | None
    """Its results.tsv."""

    @property
    def seeds(self) -> list[str]:
        return [name for name in self.params if is_seed(name)]

    def mentions(self, words: str) -> bool:
        """Whether a file of the program has these words."""
        return any(words in _original.read_text(path) for path in sorted(self.workdir.glob("*.py")))

    @property
    def uses_seed(self) -> bool:
        return bool(self.seeds) or self.mentions("AR_SEED")


class AutoresearchRL(Importer):
    """A config.yaml of epappas/autoresearch-rl, or a folder with one."""

    def why_not(self, place: str) -> str:
        table = _original.yaml_table(_config(place), "objective", "target")
        return table if isinstance(table, str) else ""

    def convert(self, place: str) -> Imported:
        table = _original.yaml_table(_config(place), "objective", "target")
        assert isinstance(table, Table), "it was recognised"
        config = _read(table)
        copied, not_copied = _original.repository_files(config.workdir)
        history, of_history = _results_tsv.history(config.ledger, config.metric) if config.ledger else ((), ())
        script = config.mutable or next((word for word in config.train if word.endswith(".py")), "train.py")
        how = {
            "prepare": config.prepare, "command": config.train, "evaluate": config.evaluate, "metric": config.metric,
            "name": config.metric, "printed": True, "at_end": "fail", "own": dict.fromkeys(config.seeds, "seed"),
        }  # fmt: skip
        return Imported(
            name=config.name,
            origin=f"{ORIGIN} ({table.path.name})",
            files={
                **copied,
                **_runner.files(how),
                **_runner.instructions(config.name, ORIGIN, script, config.instructions),
                FILE: environment_toml(_keys(config), ORIGIN),
            },
            carried=tuple(_carried(config)),
            left=(*not_copied, *of_history, *_left(config)),
            warnings=() if config.evaluate else (_runner.warning(REPOSITORY, config.metric), EVAL_CMD),
            options=config.options,
            history=history,
        )


def _config(place: str) -> Path:
    return Path(place) / CONFIG if Path(place).is_dir() else Path(place)


def _read(table: Table) -> Config:
    """The configuration. Refused where it cannot run here."""
    path, kind = table.path, table.get("target.type", str) or "command"
    stated = table.get("policy.mutable_file", str)
    program = table.get("program_path", str) or table.get("policy.program_file", str)
    workdir = table.get("target.workdir", str) or "."
    named = [name for name in (stated, program, workdir if kind == "command" else None) if name]
    root = _original.folder_with(named, path)
    folder = path.parent.resolve() if kind == "basilica" else (root / workdir).resolve()
    mutable = (root / stated).resolve() if stated else None
    if mutable and not mutable.is_relative_to(folder):
        raise Refused(f"{path}: policy.mutable_file: {stated!r} is no file below {folder}")
    train = _command(table, "train_cmd")
    if kind not in ("command", "basilica") or not train:
        raise Refused(
            f"{path}: target.type {kind!r} with train_cmd {train!r} trains nothing on this machine: give it type: "
            "command and a train_cmd"
        )
    edited = mutable.relative_to(folder).as_posix() if mutable else ""
    evaluate = _command(table, "eval_cmd")
    judged_apart = evaluate != train and (not edited or edited not in [Path(word).as_posix() for word in evaluate])
    direction = table.get("objective.direction", str) or "min"
    if direction not in ("min", "max"):
        raise Refused(f"{path}: objective.direction: must be min or max, got {direction!r}")
    source = _original.read_text(mutable) if mutable else ""
    ledger = table.get("telemetry.ledger_path", str)
    return Config(
        table=table,
        name=table.get("name", str) or "autoresearch-run",
        metric=table.get("objective.metric", str) or "val_bpb",
        direction=f"{direction}imize",
        workdir=folder,
        instructions=_original.read_text(root / program) if program else "The original has no program.md.\n",
        prepare=_command(table, "prepare_cmd"),
        train=train,
        evaluate=evaluate if judged_apart else [],
        seconds=table.get("target.timeout_s", float) or 3600.0,
        gpus=(table.get("target.basilica.gpu_count", int) or 1) if kind == "basilica" else None,
        params=table.get("policy.params", dict) or {},
        mutable=edited,
        calls=[call for call in table.get("policy.required_calls", list) or ["emit_progress"] if f"{call}(" in source],
        options=_options(table),
        ledger=root / ledger if ledger else None,
    )


def _command(table: Table, key: str) -> list[str]:
    """A command in words, with the container's paths as those of the working directory."""
    stated = table.content["target"].get(key) if isinstance(table.content["target"], dict) else None
    try:
        words = table.get(f"target.{key}", str if isinstance(stated, str) else list) or []
        words = shlex.split(words) if isinstance(words, str) else [str(word) for word in words]
    except ValueError as wrong:
        raise Refused(f"{table.path}: target.{key}: {wrong}: close it, or write the command as a list") from wrong
    return [word.removeprefix(CONTAINER) for word in words]


def _options(table: Table) -> tuple[str, ...]:
    """The policy and the controller as options of `run`."""
    kind, seed = table.get("policy.type", str) or "static", table.get("policy.seed", int)
    options = ["--proposer", PROPOSERS.get(kind, "tpe"), "--seed", str(7 if seed is None else seed)]
    models = {"llm_model": "model", "llm_api_url": "base_url", "llm_api_key_env": "key_variable"}
    for theirs, ours in models.items():
        value = table.get(f"policy.{theirs}", str)
        options += (
            ["--set", f"proposer.{ours}={value}"] if value and (kind.startswith("llm") or kind == "hybrid") else []
        )
    hours = table.get("controller.max_wall_time_s", float)
    is_parallel = table.get("controller.parallel.enabled", bool)
    at_a_time = table.get("controller.parallel.max_concurrency", int)
    limits = {
        "--trials": table.get("controller.max_iterations", int),
        "--hours": hours and f"{hours / 3600:.3g}",
        "--patience": table.get("controller.no_improve_limit", int),
        "--crash-share": table.get("controller.failure_rate_limit", float),
        "--parallel": at_a_time if is_parallel else None,
    }
    options += [word for flag, limit in limits.items() if limit for word in (flag, str(limit))]
    cancels = table.get("controller.intra_iteration_cancel.enabled", bool)
    return (*options, "--cancel", "curve" if cancels else "none")


def _keys(config: Config) -> dict[str, Any]:
    script = config.mutable or next((word for word in config.train if (config.workdir / word).is_file()), "")
    keys = _runner.keys(config.name, config.metric, config.direction, script, editable=bool(config.mutable))
    if config.evaluate:
        keys["command"] = {"eval_cmd": "python train.py judge {out} {result}", "total_seconds": config.seconds}
    space = {}
    for name, values in config.params.items():
        if not isinstance(values, list) or not all(map(is_plain, values)):
            raise Refused(f"{config.table.path}: policy.params.{name}: must be a list of values, got {values!r}")
        if values and not is_seed(name):
            space[name] = choice(values)
    return keys | {
        **({"required_calls": config.calls} if config.calls else {}),
        "budget_seconds": config.seconds,
        **({"budget_steps": STEPS} if config.mentions("emit_progress(") else {}),
        "startup_seconds": 600.0,
        **({} if config.uses_seed else {"deterministic": True}),
        **({"gpus": config.gpus} if config.gpus else {}),
        **sections(space),
    }


def _carried(config: Config) -> Iterator[Term]:
    yield Term("target.train_cmd", f"run unchanged in {REPOSITORY}/: {' '.join(config.train)}")
    yield Term("target.timeout_s", f"budget_seconds = {config.seconds:g}; one that is not over by then is stopped")
    if config.mentions("emit_progress("):
        yield Term("emit_progress", f"as before; step / step_target counts in {STEPS} parts (budget_steps)")
    judged = "the judge runs it in a frozen copy, with AR_MODEL_DIR and AR_RUN_DIR"
    yield Term("target.eval_cmd", judged if config.evaluate else "not run again: the numbers of the one training count")
    for name in config.params:
        ours = "the seed of the run" if is_seed(name) else "[space], a choice; the baseline has the first value"
        yield Term(f"policy.params.{name}", ours)
    yield Term("policy.type, controller", f"nightshift run ... {' '.join(config.options)}")


def _left(config: Config) -> Iterator[Term]:
    """The keys that are not carried, those with one reason together."""
    reasons: dict[str, list[str]] = {}
    for key in config.table.unread():
        reason = next((why for prefix, why in REASONS.items() if key.startswith(prefix)), "no key that is known here")
        reasons.setdefault(reason, []).append(key)
    yield from (Term(", ".join(keys), reason) for reason, keys in reasons.items())
    if not config.uses_seed:
        yield Term("no file reads AR_SEED", "deterministic = true: a seed changes nothing")
    if config.gpus:
        yield Term("target.type basilica", "its commands run on this machine, in the folder of the file")
