"""A config.yaml of epappas/autoresearch-rl: its commands run unchanged, with their AR_ variables and emit_progress."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _runner
from tasks.importing._original import REPOSITORY, Table
from tasks.importing._parameters import choice, is_plain, is_seed, sections

CONFIG = "config.yaml"
ORIGIN = "a configuration of epappas/autoresearch-rl"
STEPS, EMIT = 1000, "emit_progress"
"""Budget of steps where a program reports step and step_target: parts of its own target."""
PROPOSERS = {
    "static": "random_search", "grid": "grid", "random": "random_search", "learned": "learned", "llm": "llm",
    "llm_ensemble": "llm", "llm_diff": "llm_diff", "hybrid": "hybrid",
}  # fmt: skip
EVAL_CMD = (
    "for a judge that no edit changes, let training save its model in AR_MODEL_DIR, set eval_cmd to another program "
    "that measures it there, and import again"
)
NO_COUNTERPART = "where trials run, how a campaign goes on and ends, and its files are options here: docs/options.md"


class AutoresearchRL(Importer):
    """A config.yaml of epappas/autoresearch-rl, or a folder with one."""

    def why_not(self, place: str) -> str:
        table = _table(place)
        return table if isinstance(table, str) else ""

    def convert(self, place: str) -> Imported:
        table = _table(place)
        assert isinstance(table, Table), "it was recognised"
        config, options = Config(table), _options(table)
        keys, (copied, not_copied) = config.keys(), _original.repository_files(config.folder)
        commands = {"prepare": config.prepare, "command": config.train, "evaluate": config.evaluate}
        return _runner.imported(
            table.get("name", str) or "autoresearch-run", ORIGIN, config.script, config.instructions,
            program=table.path,
            metric=config.metric,
            how={**commands, "printed": True, "at_end": "fail"},
            keys=keys,
            originals=copied,
            seeds=config.seeds,
            left=(*not_copied, *config.left()),
            warnings=() if config.evaluate else (_runner.warning(REPOSITORY, config.metric), EVAL_CMD),
            options=options,
        )  # fmt: skip


def _table(place: str) -> Table | str:
    path = Path(place) / CONFIG if Path(place).is_dir() else Path(place)
    return _original.yaml_table(path, "objective", "target")


class Config:
    """A configuration, as far as it is carried. Refused where it cannot run here."""

    def __init__(self, table: Table) -> None:
        self.table, path = table, table.path
        self.metric = table.get("objective.metric", str) or "val_bpb"
        self.params: dict[str, Any] = table.get("policy.params", dict) or {}
        self.seeds = [name for name in self.params if is_seed(name)]
        workdir, mutable = table.get("target.workdir", str) or ".", table.get("policy.mutable_file", str) or ""
        program = table.get("program_path", str) or table.get("policy.program_file", str) or ""
        root = _original.folder_with(filter(None, [workdir, mutable, program]), path)
        self.folder = root / workdir
        if mutable and not Path(mutable).is_relative_to(workdir):
            raise Refused(f"{path}: policy.mutable_file: {mutable!r} is no file below {workdir!r}, the target.workdir")
        self.mutable = Path(mutable).relative_to(workdir).as_posix() if mutable else ""
        """The file that is edited; empty: none is."""
        self.instructions = _original.read_text(root / program) if program else "The original has none.\n"
        self.prepare, self.train, evaluate = (_command(table, key) for key in ("prepare_cmd", "train_cmd", "eval_cmd"))
        judged_apart = evaluate != self.train and self.mutable not in [Path(word).as_posix() for word in evaluate]
        self.evaluate = evaluate if judged_apart else []
        """The command of a judge of its own; empty where it is that of training, or of the file that is edited."""
        if (table.get("target.type", str) or "command") != "command" or not self.train:
            raise Refused(
                f"{path}: target: it trains nothing on this machine: give it type: command and a train_cmd, with paths "
                "from its working directory"
            )
        self.script = self.mutable or next((word for word in self.train if (self.folder / word).is_file()), "")
        sources = "".join(_original.read_text(file) for file in sorted(self.folder.glob("*.py")))
        self.uses_seed, self.emits = bool(self.seeds) or "AR_SEED" in sources, f"{EMIT}(" in sources

    def keys(self) -> dict[str, Any]:
        """The keys of environment.toml."""
        direction = self.table.get("objective.direction", str) or "min"
        if direction not in ("min", "max"):
            raise Refused(f"{self.table.path}: objective.direction: must be min or max, got {direction!r}")
        space = {}
        for name, values in self.params.items():
            if not isinstance(values, list) or not values or not all(map(is_plain, values)):
                raise Refused(f"{self.table.path}: policy.params.{name}: must be a list of values, got {values!r}")
            if name not in self.seeds:
                space[name] = choice(values)
        seconds = self.table.get("target.timeout_s", float) or 3600.0
        source = _original.read_text(self.folder / self.mutable) if self.mutable else ""
        required = self.table.get("policy.required_calls", list) or [EMIT]
        judged = {"eval_cmd": "python train.py judge {out} {result}", "total_seconds": seconds}
        return {
            "direction": f"{direction}imize", "budget_seconds": seconds, "startup_seconds": 600.0,
            "budget_steps": STEPS if self.emits else None, "deterministic": None if self.uses_seed else True,
            "required_calls": [call for call in required if f"{call}(" in source],
            **({} if self.mutable else {"editable": []}), **({"command": judged} if self.evaluate else {}),
            **sections(space),
        }  # fmt: skip

    def left(self) -> Iterator[Term]:
        if unread := self.table.unread():
            yield Term(", ".join(unread), NO_COUNTERPART)
        if not self.evaluate:
            yield Term("target.eval_cmd", "not run again: the numbers of training count")
        if not self.uses_seed:
            yield Term("no file reads AR_SEED", "deterministic = true: a seed changes nothing")


def _command(table: Table, key: str) -> list[str]:
    """A command in words; it may be stated as a text."""
    stated = table.get(f"target.{key}", object) or []
    words = shlex.split(stated) if isinstance(stated, str) else stated
    if not isinstance(words, list):
        raise Refused(f"{table.path}: target.{key}: must be a command, as a text or a list of words, got {stated!r}")
    return [*map(str, words)]


def _options(table: Table) -> tuple[str, ...]:
    """The policy, and how long and wide it goes on, as options of `run`."""
    kind, seed = table.get("policy.type", str) or "static", table.get("policy.seed", int)
    options = ["--proposer", PROPOSERS.get(kind, "tpe"), "--seed", str(7 if seed is None else seed)]
    hours, is_parallel = table.get("controller.max_wall_time_s", float), table.get("controller.parallel.enabled", bool)
    at_a_time = table.get("controller.parallel.max_concurrency", int)
    limits = {
        "--trials": table.get("controller.max_iterations", int),
        "--hours": hours and f"{hours / 3600:.3g}",
        "--parallel": at_a_time if is_parallel else None,
    }
    options += [word for flag, limit in limits.items() if limit for word in (flag, str(limit))]
    cancels = table.get("controller.intra_iteration_cancel.enabled", bool)
    return (*options, "--cancel", "curve" if cancels else "none")
