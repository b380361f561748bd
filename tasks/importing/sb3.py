"""A training script of Stable-Baselines3: it runs unchanged, and the control judge plays the model that it leaves."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _runner, _sb3, _source
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import guesses, is_plain, is_seed
from tasks.importing._sb3 import DEFAULTS
from tasks.importing._source import Literal

MODULES = ("stable_baselines3", "sb3_contrib")
HARMLESS = frozenset({
    "Monitor", "TimeLimit", "RecordVideo", "RecordEpisodeStatistics", "VecMonitor", "VecNormalize", "DummyVecEnv",
    "SubprocVecEnv", "VecVideoRecorder", "VecTransposeImage", "VecEnv",
})  # fmt: skip
"""Wrappers that a judge need not have."""
COMMON = sys.stdlib_module_names | frozenset(
    {*MODULES, "gymnasium", "gym", "numpy", "torch", "yaml", "wandb", "optuna", "rich", "tqdm"}
)
"""Modules that hold no environment."""
MAKING = frozenset({"render_mode", "n_envs", "seed", "start_index", "monitor_dir", "vec_env_cls", "wrapper_class"})
"""Arguments of what makes environments that are none of the environment's."""
JUDGED, LIMIT = "judged_env", 1000
REGISTER = """\
\"\"\"The problem as the judge makes it.\"\"\"

import gymnasium

gymnasium.register("Judged-v0", entry_point="{entry}")
"""


class Sb3(Importer):
    """A script that trains a model of stable_baselines3 or sb3_contrib."""

    def why_not(self, place: str) -> str:
        path = Path(place)
        if path.suffix != ".py" or not path.is_file():
            return "a folder: name the script in it" if path.is_dir() else "no file .py"
        try:
            tree = _source.parsed(path)
        except Refused as unreadable:
            return str(unreadable)
        if not _source.imports(tree) & {*MODULES}:
            return f"{path.name} imports no {' and no '.join(MODULES)}"
        return "" if [*_source.calls(tree, *DEFAULTS)] else f"{path.name} makes none of {', '.join(DEFAULTS)}"

    def convert(self, place: str) -> Imported:
        script = Script(Path(place))
        path, name, problem = script.path, script.path.name, script.problem
        modules = {file: where for file, where in _source.local_modules(path).items() if file != name}
        own_files = {name: path, **modules, **_source.named_files(script.tree, path.parent)}
        files: dict[str, str | Path] = {f"{REPOSITORY}/{file}": where for file, where in own_files.items()}
        if ":" in problem["id"]:  # the judge finds its modules in the environment's folder
            files |= modules
        if script.entry:
            files |= {f"{JUDGED}.py": REGISTER.format(entry=script.entry)}
            files |= {name: path} if script.entry.startswith(f"{path.stem}:") else {}
        steps = script.steps_name if script.steps else ""
        options = [*script.options.values, *script.options.others]
        own = dict.fromkeys(script.seeds, "seed") | ({steps: "budget_steps"} if steps else {})
        return _sb3.environment(
            f"{path.stem} on {(script.entry or problem['id']).rpartition(':')[2]}", f"the Stable-Baselines3 script {path}",
            [name, *filter(None, [script.yaml])], files,
            call={
                "program": name, "class": script.algorithm, "keywords": [*script.keywords], "steps": steps,
                "options": [one for one in (*script.space, *own) if one in options], "yaml": script.yaml,
                "settings": [one for one in (*script.space, *own) if one in script.settings],
            },
            how={"own": own, "constants": {name: [one for one in script.constants if one in {*script.space, *own}]}},
            space=script.space, steps=script.steps, problem=problem, python=_runner.python_of(path),
            left=script.left(),
        )  # fmt: skip


class Script:
    """A script as read."""

    def __init__(self, path: Path) -> None:
        self.path, self.tree = path, _source.parsed(path)
        self.options, self.constants = _source.options(self.tree), _source.constants(self.tree)
        self.named = _source.assigned(self.tree)
        files = _source.named_files(self.tree, path.parent)
        self.yaml = next((file for file in files if Path(file).suffix in (".yml", ".yaml")), "")
        """The file with its settings; empty if it names none."""
        table = _original.yaml_table(files[self.yaml]) if self.yaml else ""
        self.settings = (
            {} if isinstance(table, str) else {n: v for n, v in _original.flat(table.content) if is_plain(v)}
        )
        [self.call, *self.others] = _source.calls(self.tree, *DEFAULTS)
        self.algorithm = ast.unparse(self.call.func).rpartition(".")[2]
        names = (*self.options.values, *self.options.others, *self.constants, *self.settings)
        self.seeds = [name for name in names if is_seed(name)]
        self.entry = ""
        """The class of the environment, with its module, where it has no registered id."""
        self.problem = self._problem()
        """Its keys of [control]. Refused if no environment is seen."""

    def value(self, node: ast.expr | None) -> Literal | None:
        """What an expression is: a literal, a name that is assigned one, or an option's default."""
        if isinstance(node, ast.Name):
            return _source.literal(self.named[node.id]) if node.id in self.named else None
        if isinstance(node, ast.Attribute | ast.Subscript):
            return {**self.options.values, **self.settings}.get(self._named(node))
        return _source.literal(node) if node else None

    def _named(self, node: ast.expr | None) -> str:
        """The option that `args.name`, or the setting that `config["table"]["name"]` is; empty if it is none."""
        if isinstance(node, ast.Attribute):
            return next((name for name in self.options.values if name.replace("-", "_") == node.attr), "")
        keys: list[str] = []
        while isinstance(node, ast.Subscript):
            keys.insert(0, str(_source.literal(node.slice)))
            node = node.value
        return ".".join(keys) if ".".join(keys) in self.settings else ""

    @cached_property
    def stated(self) -> dict[str, ast.expr]:
        """The keyword arguments of the constructor, with those of a table in `**table`."""
        words = {word.arg: word.value for word in self.call.keywords if word.arg}
        for table in self._tables:
            words |= _source.entries(table)
        return words

    @property
    def _tables(self) -> list[ast.expr | None]:
        return [self.named.get(ast.unparse(word.value)) for word in self.call.keywords if word.arg is None]

    @cached_property
    def keywords(self) -> dict[str, Literal]:
        """What the constructor is given as literals, and what it takes by default, as far as that is seen."""
        literals = {name: _source.literal(node) for name, node in self.stated.items()}
        is_seen = all(map(_source.entries, self._tables))
        return {
            name: value
            for name, value in {**(DEFAULTS[self.algorithm] if is_seen else {}), **literals}.items()
            if value is not None and not is_seed(name) and name not in ("verbose", "device")
        }

    @cached_property
    def space(self) -> dict[str, dict[str, Any]]:
        """Ranges around what the constructor gets: its own arguments, constants, and options."""
        nodes = [node for each in (self.call, *self.stated.values()) for node in ast.walk(each)]
        constants = {node.id for node in nodes if isinstance(node, ast.Name)}
        options = {self._named(node) for node in nodes if isinstance(node, ast.Attribute)}
        unused = {self.steps_name, *self.options.flags, *self.seeds}
        values = {
            **self.keywords,
            **{name: value for name, value in self.constants.items() if name in constants},
            **{name: value for name, value in self.options.values.items() if name in options},
            **self.settings,
        }
        searched = {name: value for name, value in values.items() if name not in unused}
        return guesses({n: v for n, v in searched.items() if not isinstance(v, bool) and v not in (0, 1)})

    @cached_property
    def _learned(self) -> ast.expr | None:
        """What the one call of `learn` gets; None where there are several, or where it is called in a loop."""
        calls = [*_source.calls(self.tree, "learn")]
        loops = [node for node in ast.walk(self.tree) if isinstance(node, ast.For | ast.While)]
        if len(calls) != 1 or any(calls[0] in ast.walk(loop) for loop in loops):
            return None
        return next(
            (word.value for word in calls[0].keywords if word.arg == "total_timesteps"), (*calls[0].args, None)[0]
        )

    @property
    def steps(self) -> int:
        """Its time steps; 0 if they are not one number."""
        value = self.value(self._learned)
        return int(value) if isinstance(value, int | float) else 0

    @property
    def steps_name(self) -> str:
        """The option or setting that holds them, or the argument of `learn`."""
        return self._named(self._learned) or "total_timesteps"

    def _problem(self) -> dict[str, Any]:
        given = {word.arg: word.value for word in self.call.keywords}.get("env", (*self.call.args, None, None)[1])
        if isinstance(gym_id := self.value(given), str):  # PPO("MlpPolicy", "CartPole-v1")
            return {"id": self._with_module(gym_id)}
        for call in _source.calls(self.tree, "make", "make_vec_env", "make_atari_env"):
            if call.args and isinstance(gym_id := self.value(call.args[0]), str):
                return {"id": self._with_module(gym_id), **self._arguments(call)}
        makers = {ast.unparse(call.func): call for call in _source.calls(self.tree)}
        makers |= {ast.unparse(call.args[0]): call for call in _source.calls(self.tree, "make_vec_env") if call.args}
        for name, module in self._classes().items():
            if name in makers:
                self.entry = f"{module}:{name}"
                limits = [(*call.args[1:], *(word.value for word in call.keywords))[0]
                          for call in _source.calls(self.tree, "TimeLimit")]  # fmt: skip
                limit = self.value(limits[0]) if limits else LIMIT
                return {"id": f"{JUDGED}:Judged-v0", "max_episode_steps": limit, **self._arguments(makers[name])}
        raise Refused(
            f'{self.path}: its environment is not seen: in a copy, make it by gymnasium.make("ID"), '
            'make_vec_env("ID"), or as a class that is imported or derived from gymnasium.Env there'
        )

    def _classes(self) -> dict[str, str]:
        """Classes that may be environments, with their modules: derived from Env here, or imported from elsewhere."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Env") for base in node.bases):
                found[node.name] = self.path.stem
            elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] not in COMMON:
                found |= {alias.name: str(node.module) for alias in node.names if alias.name[:1].isupper()}
        return found

    def _with_module(self, gym_id: str) -> str:
        """An id with the module that registers it, where gymnasium here does not know it and one may be it."""
        if find_spec("gymnasium"):
            import gymnasium

            if ":" in gym_id or gym_id in gymnasium.registry:
                return gym_id
        modules = sorted(_source.imports(self.tree) - COMMON)
        return f"{modules[0]}:{gym_id}" if len(modules) == 1 else gym_id

    def _arguments(self, call: ast.Call) -> dict[str, Any]:
        """Keys of [control] by the arguments that make an environment, as far as they are seen."""
        words = {word.arg: word.value for word in call.keywords if word.arg and word.arg not in MAKING}
        words |= _source.entries(words.pop("env_kwargs", None))
        values = {name: value for name, node in words.items() if (value := self.value(node)) is not None}
        limit = {name: values.pop(name) for name in ("max_episode_steps",) if name in values}
        return {**limit, **({"kwargs": values} if values else {})}

    def left(self) -> Iterator[Term]:
        text, nodes = _original.read_text(self.path), [*ast.walk(self.tree)]
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and "wrapper" in str(node.module)]
        wrappers = {alias.name for node in imports for alias in node.names}
        calls = {ast.unparse(call.func).rpartition(".") for call in _source.calls(self.tree)}
        wrappers |= {name for above, _, name in calls if above.endswith("wrappers") or name.startswith("Vec")}
        if strange := sorted(name for name in wrappers - HARMLESS if not name.startswith("is_")):
            why = "the judge plays without: what changes observations or actions has to be part of [control] id"
            yield Term(", ".join(strange), why)
        if self.entry and self.problem["max_episode_steps"] == LIMIT:
            yield Term(f"the longest episode of {self.entry}", f"control.max_episode_steps = {LIMIT}, a guess")
        if self.others:
            yield Term("several models", f"parameters are those of the first, {self.algorithm}; the last one is judged")
        computed = [n for n, node in self.stated.items() if n in DEFAULTS[self.algorithm] and self.value(node) is None]
        if computed:
            yield Term(", ".join(computed), "computed: no range can be guessed")
        if not self.steps:
            yield Term("total timesteps", "not one number: the script's own, and budget_seconds")
        if "human" in text or "while True" in text:
            yield Term("what shows the agent", "no screen here; a loop without end runs until the budget: take it out")
