"""A config.yaml of epappas/autoresearch-rl: its commands run unchanged, with their AR_ variables and emit_progress."""

import shlex
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Term, _original, _runner
from tasks.importing._original import REPOSITORY, Table
from tasks.importing._parameters import choice, is_seed

STEPS, EMIT = 1000, "emit_progress"
"""Budget of steps where a program reports step and step_target: parts of its own target."""
PROPOSERS = {
    "static": "random_search", "grid": "grid", "random": "random_search", "learned": "learned", "llm": "llm",
    "llm_ensemble": "llm", "llm_diff": "llm_diff", "hybrid": "hybrid",
}  # fmt: skip
EVAL_CMD = (
    "the numbers of training count: for a judge that no edit changes, let training save its model in AR_MODEL_DIR, set "
    "eval_cmd to another program that measures it there, and import again"
)
NO_COUNTERPART = "where trials run, how a campaign goes on and ends, and its files are options here: docs/options.md"


def read(place: str) -> Imported | str:
    """A config.yaml of epappas/autoresearch-rl, or a folder with one."""
    table = _original.yaml_table(Path(place), "objective", "target", inside="config.yaml")
    if isinstance(table, str):
        return table
    path, workdir = table.path, table.get("target.workdir", str) or "."
    name = table.get("name", str) or "autoresearch-run"
    mutable = table.get("policy.mutable_file", str) or ""
    program = table.get("program_path", str) or table.get("policy.program_file", str) or ""
    root = _original.folder_with(filter(None, [workdir, mutable, program]), path)
    folder = root / workdir
    if mutable and not Path(mutable).is_relative_to(workdir):
        raise Refused(f"{path}: policy.mutable_file: {mutable!r} is no file below {workdir!r}, the target.workdir")
    edited = Path(mutable).relative_to(workdir).as_posix() if mutable else ""
    prepare, train, evaluate = (_command(table, key) for key in ("prepare_cmd", "train_cmd", "eval_cmd"))
    if (table.get("target.type", str) or "command") != "command" or not train:
        raise Refused(
            f"{path}: target: it trains nothing on this machine: give it type: command and a train_cmd, with paths "
            "from its working directory"
        )
    if evaluate == train or edited in [Path(word).as_posix() for word in evaluate]:
        evaluate = []  # a judge that is edited is none
    metric = table.get("objective.metric", str) or "val_bpb"
    direction = table.get("objective.direction", str) or "min"
    seconds = table.get("target.timeout_s", float) or 3600.0
    params, options = table.get("policy.params", dict) or {}, _options(table)
    sources = {file.name: _original.read_text(file) for file in sorted(folder.glob("*.py"))}
    source = _original.read_text(folder / edited) if edited else ""
    required = table.get("policy.required_calls", list) or [EMIT]
    uses_seed = any(map(is_seed, params)) or any("AR_SEED" in text for text in sources.values())
    keys: dict[str, Any] = {
        "direction": {"min": "minimize", "max": "maximize"}.get(direction, direction),
        "budget_seconds": seconds, "startup_seconds": 600.0,
        "budget_steps": STEPS if any(f"{EMIT}(" in text for text in sources.values()) else None,
        "deterministic": None if uses_seed else True,
        "editable": [f"{REPOSITORY}/{edited}"] if edited else [],
        "required_calls": [call for call in required if f"{call}(" in source],
    }  # fmt: skip
    if evaluate:
        keys["command"] = {"eval_cmd": "python train.py judge {out} {result}", "total_seconds": seconds}
    files, left = _original.repository_files(folder)
    if unread := table.unread():
        left.append(Term(", ".join(unread), NO_COUNTERPART))
    if not evaluate:
        left.append(Term("target.eval_cmd", EVAL_CMD))
    if not uses_seed:
        left.append(Term("no file reads AR_SEED", "deterministic = true: a seed changes nothing"))
    return _runner.imported(
        name, "a configuration of epappas/autoresearch-rl",
        edited or next((word for word in train if (folder / word).is_file()), ""),
        _original.read_text(root / program) if program else "The original has none.\n",
        program=path,
        metric=metric,
        how={"prepare": prepare, "command": train, "evaluate": evaluate, "printed": True, "at_end": "fail"},
        keys=keys,
        originals=files,
        parameters={each: choice(values) for each, values in params.items()},
        left=left,
        options=options,
    )  # fmt: skip


def _command(table: Table, key: str) -> list[str]:
    """A command in words; it may be stated as a text."""
    stated: Any = table.get(f"target.{key}", object) or []
    return shlex.split(stated) if isinstance(stated, str) else [*map(str, stated)]


def _options(table: Table) -> tuple[str, ...]:
    """The policy, and how long and wide it goes on, as options of `run`."""
    kind, hours = table.get("policy.type", str) or "static", table.get("controller.max_wall_time_s", float)
    is_parallel = table.get("controller.parallel.enabled", bool)
    cancels = table.get("controller.intra_iteration_cancel.enabled", bool)
    options = {
        "--proposer": PROPOSERS.get(kind, "tpe"), "--seed": table.get("policy.seed", int),
        "--trials": table.get("controller.max_iterations", int), "--hours": hours and f"{hours / 3600:.3g}",
        "--parallel": table.get("controller.parallel.max_concurrency", int) if is_parallel else None,
        "--cancel": "curve" if cancels else "none",
    }  # fmt: skip
    return tuple(word for flag, value in options.items() if value is not None for word in (flag, str(value)))
