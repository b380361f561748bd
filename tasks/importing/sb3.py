"""A training script of Stable-Baselines3: it runs unchanged, and the control judge plays the model that it leaves."""

import ast
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Term, _original, _runner
from tasks.importing._original import REPOSITORY, Literal
from tasks.importing._parameters import guesses, is_number, is_plain
from tasks.sandbox.interpreter import interpreter_of

EPISODES = 100
ON_POLICY = {"learning_rate": 3e-4, "n_steps": 2048, "gamma": 0.99, "gae_lambda": 0.95}
OFF_POLICY = {"learning_rate": 3e-4, "batch_size": 256, "gamma": 0.99, "tau": 0.005}
DEFAULTS: dict[str, dict[str, float]] = {
    "PPO": {**ON_POLICY, "batch_size": 64, "n_epochs": 10, "clip_range": 0.2},
    "RecurrentPPO": {**ON_POLICY, "n_steps": 128, "batch_size": 128, "n_epochs": 10, "clip_range": 0.2},
    "A2C": {**ON_POLICY, "learning_rate": 7e-4, "n_steps": 5, "gae_lambda": 1.0},
    "TRPO": {**ON_POLICY, "learning_rate": 1e-3, "batch_size": 128},
    "SAC": OFF_POLICY,
    "TQC": OFF_POLICY,
    "TD3": {**OFF_POLICY, "learning_rate": 1e-3},
    "DDPG": {**OFF_POLICY, "learning_rate": 1e-3},
    "CrossQ": {"learning_rate": 1e-3, "batch_size": 256, "gamma": 0.99},
    "DQN": {"learning_rate": 1e-4, "batch_size": 32, "gamma": 0.99, "exploration_fraction": 0.1},
    "QRDQN": {"learning_rate": 5e-5, "batch_size": 32, "gamma": 0.99},
    "ARS": {"learning_rate": 0.02},
}
"""The algorithms whose models the judge can play, with what their constructors take where a program says nothing."""
STEPS = "total_timesteps"
MODULES = ("stable_baselines3", "sb3_contrib")
COMMON = sys.stdlib_module_names | {*MODULES, "gymnasium", "gym", "numpy", "torch", "yaml", "wandb", "optuna", "rich"}
"""Modules that hold no environment of the user's."""
MAKING = frozenset({
    "render_mode", "disable_env_checker", "n_envs", "seed", "start_index", "monitor_dir", "vec_env_cls",
    "wrapper_class",
})  # fmt: skip
"""Arguments of what makes environments that are none of the environment's."""
SHOWN = frozenset({"env", "policy", "verbose", "device", "seed", "tensorboard_log"})
"""Arguments of a constructor that say nothing of learning."""
KEPT = SHOWN | {"buffer_size", "optimize_memory_usage", "stats_window_size", "n_envs", "n_timesteps"}
"""Those that nobody searches."""
JUDGED, LIMIT = "judged_env", 1000
REGISTER = """\
\"\"\"The problem as the judge makes it.\"\"\"

import gymnasium

gymnasium.register("Judged-v0", entry_point="{}")
"""


def read(place: str) -> Imported | str:
    """A script that trains a model of stable_baselines3 or sb3_contrib."""
    tree = _original.script(place)
    if isinstance(tree, str):
        return tree
    if not makes_model(tree):
        return f"it makes no model of {' or '.join(MODULES)}: {', '.join(DEFAULTS)}"
    script = Script(Path(place))
    path, name, problem, space, entry = script.path, script.path.name, script.problem, script.space, script.entry
    own = _original.with_modules(path)
    files: dict[str, str | Path] = {f"{REPOSITORY}/{file}": each for file, each in (own | script.files).items()}
    if ":" in problem["id"]:  # the judge finds its modules in the environment's folder
        files |= {file: each for file, each in own.items() if file != name}
    if entry:
        files |= {f"{JUDGED}.py": REGISTER.format(entry)}
    return environment(
        f"{path.stem} on {(entry or problem['id']).rpartition(':')[2]}", f"the Stable-Baselines3 script {path}",
        [name, *filter(None, [script.yaml])], files,
        program=path,
        call=[json.dumps({"class": script.algorithm}), name],
        space=space,
        steps=script.steps,
        problem=problem,
        left=script.left(),
    )  # fmt: skip


def makes_model(tree: ast.Module) -> bool:
    """Whether a script makes a model that it learns: some use these packages for a buffer alone."""
    return bool(_original.imports(tree) & {*MODULES} and [*_original.calls(tree, *DEFAULTS)])


class Script:
    """A script as read."""

    def __init__(self, path: Path) -> None:
        self.path, self.tree = path, _original.parsed(path)
        self.options, self.named = _original.options(self.tree).values, _original.assigned(self.tree)
        self.files = _original.named_files(self.tree, path.parent)
        self.yaml = next((file for file in self.files if Path(file).suffix in (".yml", ".yaml")), "")
        """The file with its settings; empty if it names none."""
        table = _original.yaml_table(self.files[self.yaml]) if self.yaml else ""
        every = {} if isinstance(table, str) else dict(_original.flat(table.content))
        self.settings = {name: value for name, value in every.items() if is_plain(value)}
        self.call = next(_original.calls(self.tree, *DEFAULTS))
        self.algorithm = ast.unparse(self.call.func).rpartition(".")[2]
        self.stated = self._stated()
        """The arguments of the constructor by name, those of `**table` among them; None where one is computed."""
        self.space = space(self.algorithm, self.stated)
        self.entry = ""
        """The class of the environment, with its module, where it has no registered id."""
        self.unseen: list[str] = []
        """Arguments of the environment whose values are not seen."""
        self.problem = self._problem()
        """Its keys of [control]. Refused if no environment is seen."""

    def value(self, node: ast.expr | None) -> Literal | None:
        """A literal, a name that is assigned one, an option's default in `args.name`, a setting in `config["name"]`."""
        if isinstance(node, ast.Name):
            return _original.literal(self.named.get(node.id))
        if isinstance(node, ast.Attribute):
            return next((value for name, value in self.options.items() if name.replace("-", "_") == node.attr), None)
        keys: list[str] = []
        while isinstance(node, ast.Subscript):
            keys.insert(0, str(_original.literal(node.slice)))
            node = node.value
        return self.settings.get(".".join(keys)) if keys else _original.literal(node)

    def _stated(self) -> dict[str, Literal | None]:
        by_place = DEFAULTS[self.algorithm] if len(self.call.args) > 2 else ()  # which they are is not seen
        named = dict.fromkeys(by_place) | {word.arg: self.value(word.value) for word in self.call.keywords if word.arg}
        for table in [word.value for word in self.call.keywords if word.arg is None]:
            entries = _original.entries(self.named.get(ast.unparse(table), table))
            settings = {name.rpartition(".")[2]: value for name, value in self.settings.items()}
            named |= {name: self.value(node) for name, node in entries.items()} if entries else settings
            if not entries and not settings:  # not seen: anything may be in it
                named = dict.fromkeys(DEFAULTS[self.algorithm]) | named
        return named

    @property
    def steps(self) -> int:
        """What the one call of `learn` gets; 0 where that is no number, there are several, or it is in a loop."""
        calls = [*_original.calls(self.tree, "learn")]
        loops = [node for node in ast.walk(self.tree) if isinstance(node, ast.For | ast.While)]
        if len(calls) != 1 or any(calls[0] in ast.walk(loop) for loop in loops):
            return 0
        words = {word.arg: word.value for word in calls[0].keywords}
        value = self.value(words.get("total_timesteps", (*calls[0].args, None)[0]))
        return int(value) if isinstance(value, int | float) else 0

    def _problem(self) -> dict[str, Any]:
        given = {word.arg: word.value for word in self.call.keywords}.get("env", (*self.call.args, None, None)[1])
        makers = _original.calls(self.tree, "make", "make_vec_env")
        for named, call in [(given, None), *((call.args[0], call) for call in makers if call.args)]:
            if isinstance(gym_id := self.value(named), str):  # PPO("MlpPolicy", "CartPole-v1")
                return {"id": self._with_module(gym_id), **(self._arguments(call) if call else {})}
        made = {ast.unparse(call.func): call for call in _original.calls(self.tree)}
        made |= {ast.unparse(call.args[0]): call for call in _original.calls(self.tree, "make_vec_env") if call.args}
        imports = [node for node in ast.walk(self.tree) if isinstance(node, ast.ImportFrom)]
        for module, name in ((str(node.module), alias.name) for node in imports for alias in node.names):
            if name in made and name[:1].isupper() and module.partition(".")[0] not in COMMON:
                self.entry = f"{module}:{name}"
                return {"id": f"{JUDGED}:Judged-v0", "max_episode_steps": LIMIT, **self._arguments(made[name])}
        raise Refused(
            f'{self.path}: its environment is not seen: in a copy, make it by gymnasium.make("ID"), '
            'make_vec_env("ID"), or as a class that is imported from a file beside it'
        )

    def _with_module(self, gym_id: str) -> str:
        """An id with the module that registers it, where gymnasium here does not know it and one may be it."""
        known = import_module("gymnasium").registry if find_spec("gymnasium") else {}
        modules = _original.imports(self.tree) - COMMON
        return gym_id if ":" in gym_id or gym_id in known or len(modules) != 1 else f"{modules.pop()}:{gym_id}"

    def _arguments(self, call: ast.Call) -> dict[str, Any]:
        """Keys of [control] by the arguments that make an environment, as far as they are seen."""
        tables = [word.value for word in call.keywords if word.arg in (None, "env_kwargs")]
        words = {str(word.arg): word.value for word in call.keywords if word.arg not in {None, "env_kwargs", *MAKING}}
        for table in tables:
            words |= (entries := _original.entries(self.named.get(ast.unparse(table), table)))
            self.unseen += [] if entries else [ast.unparse(table)]
        values = {name: value for name, node in words.items() if (value := self.value(node)) is not None}
        self.unseen += [name for name, node in words.items() if name not in values and ast.unparse(node) != "None"]
        if self.entry and ast.unparse(call.func) == self.entry.partition(":")[2]:
            self.unseen += map(ast.unparse, call.args)  # by place, whose names are not known
        limit = {name: values.pop(name) for name in ("max_episode_steps",) if name in values}
        return {**limit, **({"kwargs": values} if values else {})}

    def left(self) -> Iterator[Term]:
        if self.entry and self.problem["max_episode_steps"] == LIMIT:
            yield Term(f"the longest episode of {self.entry}", f"control.max_episode_steps = {LIMIT}, a guess")
        if self.unseen:
            yield Term(", ".join(self.unseen), "of the environment, and not seen: state them in control.kwargs")
        if rest := [name for name in self.stated if name not in {*self.space, *SHOWN}]:
            yield Term(", ".join(rest), "as the script gives them: computed, or no range can be guessed")
        if not self.steps:
            yield Term("total timesteps", "not one number: the script's own, and budget_seconds")


def space(algorithm: str, stated: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Ranges around what the constructor gets, or takes by default; none around 0 and 1, which may be ends."""
    return guesses({
        name: value for name, value in {**DEFAULTS[algorithm], **stated}.items()
        if name not in KEPT and is_number(value) and value not in (0, 1)
    })  # fmt: skip


def environment(
    title: str, origin: str, edited: Sequence[str], files: Mapping[str, str | Path], *, program: Path,
    call: Sequence[str], space: Mapping[str, Any], steps: int, problem: Mapping[str, Any], left: Iterable[Term],
) -> Imported:  # fmt: skip
    """The environment of a program.

    Args:
        edited: Files in `repository/`, the main one first.
        call: What programs/sb3_call.py is told.
        steps: Of the budget; 0: the program's own.
        problem: Keys of [control].
    """
    python = _runner.python_of(program)
    control = {**problem, "episodes": EPISODES, "other_episodes": 0, "start_seconds": 180.0}
    if python and ":" in str(problem["id"]):  # a module that only the program's own environment may have
        own = interpreter_of(python)
        folders = [*own.prefixes[0].glob("lib/python3*/site-packages"), *(path.parent for path in own.editable)]
        control["packages"] = list(dict.fromkeys(map(str, folders)))
    return _runner.imported(
        title, origin, edited[0],
        f"It trains an agent with Stable-Baselines3; the judge plays the model that it saves in {problem['id']}.\n",
        program=program,
        metric="return",
        how={
            "command": ["${interpreter}", "-m", "sb3_call", *call], "keeps_files": True, "says_ready": True,
            "own": {STEPS: "budget_steps"} if steps else {},
            "variables": {"SDL_VIDEODRIVER": "dummy", "WANDB_MODE": "disabled"},
        },
        keys={
            "direction": "maximize", "editable": [f"{REPOSITORY}/{file}" for file in edited],
            "budget_steps": steps or None, "startup_seconds": 120.0, "grace_seconds": 60.0, "space": space,
            "requires": None if python else {"stable_baselines3": "pip install stable-baselines3"},
        },
        originals=files,
        control=control,
        stand_ins=["sb3_call"],
        left=(
            *left,
            Term("its evaluation, wrappers and seed", "the judge plays without; training gets the seed of the run"),
        ),
    )  # fmt: skip
