"""Folders like karpathy/autoresearch and zjianyi/autoRL: train.py, which an agent edits, beside a frozen harness.

With karpathy's prepare.py the score is a line that train.py prints. With zjianyi's evaluate.py the control judge plays
the agent that train.py hands to `evaluate_policy`, and what train.py prints is no score.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _parameters, _results_tsv, _runner, _source
from tasks.importing._original import REPOSITORY

SCRIPT, INSTRUCTIONS = "train.py", "program.md"
PREPARE, EVALUATE = "prepare.py", "evaluate.py"
POLICY, ID, EPISODES, MOST_EPISODES = "evaluate_policy", "ENV_ID", "NUM_EVAL_EPISODES", 1000
ORIGINS = {
    PREPARE: "a folder like karpathy/autoresearch (train.py, prepare.py, program.md)",
    EVALUATE: "a folder like zjianyi/autoRL (train.py, evaluate.py with evaluate_policy)",
}
BUDGET_SECONDS = 300.0
"""Where no file states a budget."""
GRACE_SECONDS = 30.0, 600.0
"""Least and most time for what a script does after its training, such as its own evaluation."""
HOME = re.compile(r"""(?:expanduser\(\s*["']~/?([\w./-]*)["']\s*\)|\bPath\.home\(\))((?:\s*[,/]\s*["'][\w.-]+["'])*)""")
"""A path below the home directory: `os.path.join(os.path.expanduser("~"), "data")`, `Path.home() / "data"`."""
HUGGING_FACE = frozenset({"kernels", "transformers", "datasets", "huggingface_hub"})
"""Modules that read the cache of the Hugging Face hub."""
KEEP_AGENT = f"""

# Added by `nightshift env import`: each agent that is evaluated is left in a file, and the judge plays the last one.
_evaluate_as_before = {POLICY}


def {POLICY}(agent, device="cpu", *args, **options):
    import os

    import cloudpickle

    path = os.path.join(os.environ["AR_MODEL_DIR"], "agent.pkl")
    with open(path + ".half", "wb") as file:
        cloudpickle.dump((agent, str(device)), file)
    os.replace(path + ".half", path)
    return _evaluate_as_before(agent, device, *args, **options)
"""


class Autoresearch(Importer):
    """A folder with train.py beside prepare.py and program.md, or beside evaluate.py with evaluate_policy."""

    def why_not(self, place: str) -> str:
        folder = Path(place)
        if (folder / "config.yaml").is_file():
            return "it has a config.yaml, so it is of another kind"
        wanted = [SCRIPT] if _is_played(folder) else [SCRIPT, PREPARE, INSTRUCTIONS]
        missing = [name for name in wanted if not (folder / name).is_file()]
        return f"no {', no '.join(missing)} in it" if missing else ""

    def convert(self, place: str) -> Imported:
        folder = Path(place)
        script = Script(folder, EVALUATE if _is_played(folder) else PREPARE)
        script.check()
        origin, metric, files = ORIGINS[script.harness], script.metric, dict(script.files)
        keys, how, warnings = script.keys(), script.how(), [_runner.warning(f"{REPOSITORY}/{SCRIPT}", metric)]
        if script.harness == EVALUATE:
            keys, warnings = keys | _played(script), []
            files |= {f"{REPOSITORY}/{EVALUATE}": _original.read_text(folder / EVALUATE) + KEEP_AGENT}
            files["act.py"] = _runner.PROGRAMS / "act.py"
        else:
            how |= {"metric": metric, "name": metric, "printed": True}
        history, of_history = _results_tsv.history(folder / _results_tsv.FILE, metric)
        return Imported(
            name=script.name,
            origin=origin,
            files=_runner.files(
                script.name, origin, SCRIPT, script.instructions, how=how, keys=keys, originals=files
            ),
            left=(*script.left(), *of_history),
            warnings=tuple(warnings),
            history=history,
        )  # fmt: skip


def _is_played(folder: Path) -> bool:
    """Whether a folder has zjianyi's harness."""
    path = folder / EVALUATE
    return path.is_file() and all(word in _original.read_text(path) for word in (f"def {POLICY}(", f"{ID} ="))


def _played(script: Script) -> dict[str, Any]:
    """The keys with which the control judge plays the agent of a script."""
    gym_id, episodes = script.frozen.get(ID), script.frozen.get(EPISODES)
    if not isinstance(gym_id, str):
        raise Refused(f'{script.folder / EVALUATE}: {ID} is no plain text: write {ID} = "CartPole-v1"')
    if f"{POLICY}(" not in script.text:
        raise Refused(
            f"{script.folder / SCRIPT} never calls {POLICY}, so nothing says which agent to judge: call "
            f"{POLICY}(agent, device) at its end"
        )
    judged = min(int(episodes), MOST_EPISODES) if isinstance(episodes, int) and episodes > 0 else 100
    return {
        "program": ["train.py", "run.json", "standin", REPOSITORY, "act.py"], "command": None, "device": "cpu",
        "required_calls": [POLICY], "requires": {"cloudpickle": "pip install cloudpickle"},
        "judge": "control", "control": {"id": gym_id, "episodes": judged, "other_episodes": 0, "deterministic": True},
    }  # fmt: skip


class Script:
    """A training script without arguments, and its harness."""

    def __init__(self, folder: Path, harness: str) -> None:
        self.folder, self.harness, self.name = folder, harness, folder.resolve().name
        self.text, frozen = _original.read_text(folder / SCRIPT), _original.read_text(folder / harness)
        self.tree, harness_tree = _source.parsed(folder / SCRIPT), _source.parsed(folder / harness)
        path = folder / INSTRUCTIONS
        self.instructions = _original.read_text(path) if path.is_file() else ""
        self.constants, self.frozen = _source.constants(self.tree), _source.constants(harness_tree)
        self.files, self.not_copied = _original.repository_files(folder)
        self.space = _parameters.guesses(self.constants)
        self.seeds = [name for name in self.constants if _parameters.is_seed(name)]
        self.python = _runner.python_of(folder / SCRIPT)
        named = [match for text in (self.text, frozen) for match in HOME.finditer(text)]
        data = {Path.home().joinpath(match[1] or "", *re.findall(r"[\w.-]+", match[2])) for match in named}
        data.discard(Path.home())
        self.data = sorted(place for place in data if not data & {*place.parents})
        """Folders of the home directory that the programs read: a trial has a home of its own."""
        hub = os.environ.get("HF_HUB_CACHE") or Path(
            os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface", "hub"
        )
        uses_hub = HUGGING_FACE & (_source.imports(self.tree) | _source.imports(harness_tree))
        self.hub = [str(Path(hub).absolute())] if uses_hub else []
        """The cache of the Hugging Face hub, if they use it. The token lies beside it and stays out of reach."""
        clocks = [name for name, value in self.frozen.items() if "TIME_BUDGET" in name and type(value) in (int, float)]
        self.clock = clocks[:1]
        """The constant of the harness that holds the training time in seconds, if there is one."""

    def check(self) -> None:
        """Refuse a fork in which another file is edited or run."""
        module = self.harness.removesuffix(".py")
        edited = re.search(
            r"\b(?:edit|modify|change)s?\b[^.\n]{0,20}`(\w+\.py)`\s+(?:and nothing else|only)", self.instructions
        )
        run = re.findall(r"(?:python3?|uv run)\s+(\w+\.py)\s*>", self.instructions)
        reason = (
            f"{INSTRUCTIONS} has {edited[1]} edited" if edited and edited[1] != SCRIPT
            else f"{INSTRUCTIONS} runs {run[0]}" if run and SCRIPT not in run
            else f"{SCRIPT} imports no {module}" if module not in _source.imports(self.tree) and not run
            else ""
        )  # fmt: skip
        if reason:
            raise Refused(
                f"{self.folder}: {reason}, so it is not {SCRIPT} that is to be edited and run: write an "
                "environment.toml for it (docs/environments.md)"
            )

    @cached_property
    def metric(self) -> str:
        """The metric that the instructions have looked up in the log."""
        if looked_up := re.search(r"grep\s+(?:-\w+\s+)?[\"']\^?([A-Za-z_]\w*):", self.instructions):
            return looked_up[1]
        if self.harness == EVALUATE:
            return "return"
        raise Refused(
            f"{self.folder / INSTRUCTIONS}: no metric is stated: say how it is read from the log, such as: grep "
            '"^val_loss:" run.log'
        )

    @cached_property
    def direction(self) -> str:
        """Whether that is minimised or maximised, by the words near its name."""
        near = " ".join(re.findall(rf"[^.\n]{{0,60}}\b{self.metric}\b[^.\n]{{0,60}}", self.instructions))
        less = bool(re.search(r"\b(lower|lowest|minimi[sz]e|smallest)\b", near, re.IGNORECASE))
        more = bool(re.search(r"\b(higher|highest|maximi[sz]e|largest)\b", near, re.IGNORECASE))
        if less != more or self.harness == EVALUATE:
            return "minimize" if less and not more else "maximize"
        raise Refused(
            f"{self.folder / INSTRUCTIONS}: whether {self.metric} is better high or low is not stated: write 'get the "
            f"highest {self.metric}' or 'get the lowest {self.metric}'"
        )

    def how(self) -> dict[str, Any]:
        """How the runner runs it: constants are set in a copy of the files, and it ends by its own clock."""
        return {
            "command": ["${interpreter}", "${program}"], "at_end": "finish",
            "own": dict.fromkeys(self.seeds, "seed") | dict.fromkeys(self.clock, "budget_seconds"),
            "constants": {SCRIPT: [*self.space, *self.seeds], self.harness: self.clock},
            "defaults": {name: self.constants[name] for name in self.space},
            "home": str(Path.home()), "links": [str(place) for place in self.data],
            "variables": {"HF_HUB_CACHE": self.hub[0], "HF_HUB_OFFLINE": "1"} if self.hub else {},
        }  # fmt: skip

    def keys(self) -> dict[str, Any]:
        """The keys of environment.toml for a score that it prints."""
        least, most = GRACE_SECONDS
        seconds = float(self.frozen[self.clock[0]]) if self.clock else BUDGET_SECONDS
        longest = re.search(r"exceeds?\s+(\d+(?:\.\d+)?)\s*minute", self.instructions)  # "exceeds 10 minutes, kill it"
        after = 60 * float(longest[1]) - seconds if longest else least
        return {
            "metric": self.metric, "direction": self.direction, "budget_seconds": seconds, "startup_seconds": 120.0,
            "grace_seconds": min(max(least, after), most), "python": self.python or None,
            "readable": [*map(str, self.data), *self.hub], "space": self.space,
        }  # fmt: skip

    def left(self) -> Iterator[Term]:
        yield from self.not_copied
        yield from (
            Term(str(place), "readable: prepare data there with the original, as before") for place in self.data
        )
        yield from (
            Term(place, "readable, without a download: run the original once, to fill it") for place in self.hub
        )
        if not self.seeds:
            why = "every run draws the same numbers, so fresh runs differ only by timing: give it SEED"
            yield Term("no constant SEED in train.py", why)
        if not self.clock:
            yield Term(f"no TIME_BUDGET in {self.harness}", f"train.py must end by itself in {BUDGET_SECONDS:g} s")
        yield _runner.packages(self.python)
