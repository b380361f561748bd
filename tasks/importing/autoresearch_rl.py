"""A config.yaml of epappas/autoresearch-rl: its commands run unchanged, with their AR_ variables and emit_progress."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from environments import FILE
from environments.plugins import Refused
from tasks.importing import Imported, Importer, Recognised, Term, _runner, _script, _yaml, environment_toml
from tasks.importing import _repository as repository
from tasks.importing._runner import REPOSITORY, is_seed
from tasks.importing._target_config import TargetConfig, checked
from tasks.importing.reading import results_tsv

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
class _Files:
    """A configuration, with the folder that its paths are relative to."""

    config: TargetConfig
    path: Path
    root: Path

    @property
    def workdir(self) -> Path:
        return self.path.parent if self.config.target.type == "basilica" else self.root / self.config.target.workdir

    def inside(self, name: str | None) -> str:
        """A file of the working directory, relative to it; empty if it is none or lies elsewhere."""
        path = (self.root / name).resolve() if name else None
        if path and not path.is_file():
            path = (self.workdir / str(name)).resolve()
        here = self.workdir.resolve()
        return path.relative_to(here).as_posix() if path and path.is_file() and path.is_relative_to(here) else ""

    def command(self, words: tuple[str, ...] | None) -> list[str]:
        """A command with the container's paths as those of the working directory."""
        inner = {word: word.removeprefix(CONTAINER) for word in words or () if word.startswith(CONTAINER)}
        return [
            inner[word] if word in inner and (self.workdir / inner[word]).exists() else word for word in words or ()
        ]


class AutoresearchRL(Importer):
    """A config.yaml of epappas/autoresearch-rl, or a folder with one."""

    def recognise(self, place: str) -> Recognised:
        path = _config(place)
        if not path.is_file():
            return Recognised(False, f"no {CONFIG} in it" if Path(place).is_dir() else "no plain file of that name")
        if path.suffix not in (".yaml", ".yml"):
            return Recognised(False, "no YAML file")
        try:
            table = _yaml.read(path)
        except Refused as wrong:
            return Recognised(False, str(wrong))
        missing = [key for key in ("objective", "target") if not isinstance(table, dict) or key not in table]
        if missing:
            return Recognised(False, f"{path.name} has no {', no '.join(missing)}")
        return Recognised(True, f"{path.name} has objective and target")

    def convert(self, place: str) -> Imported:
        path = _config(place)
        table = _yaml.read(path)
        assert isinstance(table, dict), "it was recognised"
        config = checked(table, path)
        files = _Files(config, path, _root(path, config))
        target, policy = config.target, config.policy
        if target.type not in ("command", "basilica") or not target.train_cmd:
            raise Refused(
                f"{path}: target.type {target.type!r} with train_cmd {target.train_cmd!r} trains nothing on this "
                f"machine: give it type: command and a train_cmd"
            )
        _check_paths(files)
        mutable = files.inside(policy.mutable_file)
        if policy.mutable_file and not mutable:
            raise Refused(f"{path}: policy.mutable_file: {policy.mutable_file!r} is no file below {files.workdir}")
        copied, not_copied = repository.repository_files(files.workdir)
        judged_apart = _is_judged_apart(files, mutable)
        return Imported(
            name=config.name,
            origin=f"{ORIGIN} ({path.name})",
            files={**copied, **_programs(files, judged_apart), FILE: _environment(files, mutable, judged_apart)},
            carried=tuple(_carried(files, mutable, judged_apart)),
            left=(*not_copied, *_left(files)),
            warnings=() if judged_apart else (_runner.warning(REPOSITORY, config.objective.metric), EVAL_CMD),
            options=_options(config),
            history=results_tsv.trials(path.parent / "artifacts" / results_tsv.FILE, metric="metric_value"),
        )


def _config(place: str) -> Path:
    return Path(place) / CONFIG if Path(place).is_dir() else Path(place)


def _root(path: Path, config: TargetConfig) -> Path:
    """The folder from which the tool was started, which its paths are relative to: the nearest that has them all."""
    above = list(path.resolve().parents)
    if config.target.type == "command":
        above = [folder for folder in above if (folder / config.target.workdir).is_dir()]
    if not above:
        raise Refused(f"{path}: target.workdir: no folder above has {config.target.workdir!r}: correct it")
    names = (config.policy.mutable_file, config.policy.program_file, config.program_path)
    return next((folder for folder in above if all((folder / name).is_file() for name in names if name)), above[0])


def _check_paths(files: _Files) -> None:
    """Refuse what lies outside of the folder that paths are relative to: it would be copied."""
    config = files.config
    named = {"policy.program_file": config.policy.program_file, "program_path": config.program_path}
    named |= {"target.workdir": config.target.workdir} if config.target.type == "command" else {}
    for key, name in named.items():
        if name and not (files.root / name).resolve().is_relative_to(files.root.resolve()):
            raise Refused(f"{files.path}: {key}: {name!r} leads out of {files.root}: keep it below that folder")


def _is_judged_apart(files: _Files, mutable: str) -> bool:
    """Whether eval_cmd is another command than training, around a file that no edit changes."""
    evaluating = files.command(files.config.target.eval_cmd)
    if not evaluating or evaluating == files.command(files.config.target.train_cmd):
        return False
    return not mutable or mutable not in [Path(word).as_posix() for word in evaluating]


def _programs(files: _Files, judged_apart: bool) -> dict[str, str | Path]:
    config, target = files.config, files.config.target
    how = {
        "prepare": files.command(target.prepare_cmd), "command": files.command(target.train_cmd),
        "evaluate": files.command(target.eval_cmd) if judged_apart else [],
        "metric": config.objective.metric, "name": config.objective.metric, "printed": True, "at_end": "fail",
        "emits": _mentions(files, "emit_progress("), "seeds": [name for name in config.policy.params if is_seed(name)],
    }  # fmt: skip
    instructions = config.program_path or config.policy.program_file
    place = files.root / instructions if instructions else None
    text = repository.read_text(place) if place and place.is_file() else "The original has no program.md.\n"
    mutable = Path(config.policy.mutable_file or "train.py").name
    return {
        **_runner.files(how),
        "standin/autoresearch_rl/__init__.py": "from autoresearch_rl.target.progress import emit_progress\n",
        "standin/autoresearch_rl/target/__init__.py": "",
        "standin/autoresearch_rl/target/progress.py": _runner.program("emit_progress.py"),
        _script.INSTRUCTIONS: _script.NOTE.format(
            title=config.name, origin=ORIGIN, repository=REPOSITORY, script=mutable, text=text
        ),
    }


def _environment(files: _Files, mutable: str, judged_apart: bool) -> str:
    config, target = files.config, files.config.target
    calls = _required_calls(files, mutable)
    direction = "minimize" if config.objective.direction == "min" else "maximize"
    keys = _runner.keys(config.name, config.objective.metric, direction, mutable)
    keys["program"].append("standin")
    if judged_apart:
        keys["command"] = {"eval_cmd": "python train.py {out} {result}", "total_seconds": float(target.timeout_s)}
    keys |= {
        **({"required_calls": calls} if calls else {}),
        "budget_seconds": float(target.timeout_s),
        **({"budget_steps": STEPS} if _mentions(files, "emit_progress(") else {}),
        "startup_seconds": 600.0,
        **({} if _uses_seed(files) else {"deterministic": True}),
        **({"gpus": target.basilica.gpu_count} if target.type == "basilica" else {}),
        "space": config.space(),
    }
    return environment_toml(keys, f"Imported by `nightshift env import` from {ORIGIN}.")


def _uses_seed(files: _Files) -> bool:
    return _mentions(files, "AR_SEED") or any(map(is_seed, files.config.policy.params))


def _mentions(files: _Files, words: str) -> bool:
    """Whether a file of the program has these words."""
    return any(words in repository.read_text(path) for path in sorted(files.workdir.glob("*.py")))


def _required_calls(files: _Files, mutable: str) -> list[str]:
    """Those calls that the mutable file makes."""
    if not mutable:
        return []
    source = repository.read_text(files.workdir / mutable)
    return [call for call in files.config.policy.required_calls if f"{call}(" in source]


def _options(config: TargetConfig) -> tuple[str, ...]:
    """The policy and the controller as options of `run`."""
    policy, controller = config.policy, config.controller
    options = ["--proposer", PROPOSERS.get(policy.type, "tpe"), "--seed", str(policy.seed)]
    asks = policy.type.startswith("llm") or policy.type == "hybrid"
    for key, value in (
        ("model", policy.llm_model), ("base_url", policy.llm_api_url), ("key_variable", policy.llm_api_key_env),
    ):  # fmt: skip
        options += ["--set", f"proposer.{key}={value}"] if asks and value else []
    hours = controller.max_wall_time_s and f"{controller.max_wall_time_s / 3600:.3g}"
    for flag, limit in (
        ("--trials", controller.max_iterations), ("--hours", hours), ("--patience", controller.no_improve_limit),
        ("--crash-share", controller.failure_rate_limit),
        ("--parallel", controller.parallel.max_concurrency if controller.parallel.enabled else None),
    ):  # fmt: skip
        options += [flag, str(limit)] if limit else []
    return (*options, "--cancel", "curve" if controller.intra_iteration_cancel.enabled else "none")


def _carried(files: _Files, mutable: str, judged_apart: bool) -> Iterator[Term]:
    config = files.config
    target, policy = config.target, config.policy
    yield Term("objective", f"metric {config.objective.metric}, direction {config.objective.direction}imize")
    yield Term("target.train_cmd", f"run unchanged in {REPOSITORY}/: {' '.join(files.command(target.train_cmd))}")
    yield Term("target.timeout_s", f"budget_seconds = {target.timeout_s:g}; one that is not over by then is stopped")
    if _mentions(files, "emit_progress("):
        yield Term("emit_progress", f"as before; step / step_target counts in {STEPS} parts (budget_steps)")
    if target.prepare_cmd:
        yield Term("target.prepare_cmd", "run before each training, in its own copy of the files")
    if judged_apart:
        yield Term("target.eval_cmd", "the judge runs it in a frozen copy, with AR_MODEL_DIR and AR_RUN_DIR")
    else:
        yield Term("target.eval_cmd, or none", "the numbers of the one training count; it is not run again")
    for name in policy.params:
        ours = "the seed of the run" if is_seed(name) else "[space], a choice; the baseline has the first value"
        yield Term(f"policy.params.{name}", ours)
    if mutable:
        yield Term("policy.mutable_file", f"editable: {REPOSITORY}/{mutable}")
    yield Term(f"policy.type {policy.type}, controller", f"nightshift run ... {' '.join(_options(config))}")


def _left(files: _Files) -> list[Term]:
    """The keys that are not carried, those with one reason together."""
    reasons: dict[str, list[str]] = {}
    for key in files.config.unknown():
        reason = next((why for prefix, why in REASONS.items() if key.startswith(prefix)), "no key that is known here")
        reasons.setdefault(reason, []).append(key)
    terms = [Term(", ".join(keys), reason) for reason, keys in reasons.items()]
    if not _uses_seed(files):
        terms.append(Term("no file reads AR_SEED", "deterministic = true: a seed changes nothing"))
    if files.config.target.type == "basilica":
        terms.append(Term("target.type basilica", "its commands run on this machine, in the folder of the file"))
    if files.config.policy.type == "llm_ensemble":
        words = 'one model proposes; for several: --proposer ensemble --set proposer.models=\'["A", "B"]\''
        terms.append(Term("policy.type llm_ensemble", words))
    return terms
