"""Folders like karpathy/autoresearch and zjianyi/autoRL: train.py, which an agent edits, beside a frozen harness.

With karpathy's prepare.py the score is a line that train.py prints. With zjianyi's evaluate.py the control judge plays
the agent that train.py hands to `evaluate_policy`, and what train.py prints is no score.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _parameters, _runner, _source
from tasks.importing._original import REPOSITORY

SCRIPT, INSTRUCTIONS = "train.py", "program.md"
PREPARE, EVALUATE = "prepare.py", "evaluate.py"
POLICY, ID, EPISODES = "evaluate_policy", "ENV_ID", "NUM_EVAL_EPISODES"
ORIGINS = {
    PREPARE: "a folder like karpathy/autoresearch (train.py, prepare.py, program.md)",
    EVALUATE: "a folder like zjianyi/autoRL (train.py, evaluate.py with evaluate_policy)",
}
BUDGET_SECONDS = 300.0
"""Where no file states a budget."""
GRACE_SECONDS = 300.0
"""For what a script does after its training, such as its own evaluation: as long as karpathy's gives it."""
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
        script = Script(Path(place))
        return _runner.imported(
            script.folder.resolve().name, ORIGINS[script.harness], SCRIPT, script.instructions,
            program=script.folder / SCRIPT,
            metric=script.metric,
            how=script.how(),
            keys=script.keys(),
            control=script.control(),
            originals=script.files,
            seeds=script.seeds,
            left=script.left(),
            warnings=() if script.is_played else (_runner.warning(f"{REPOSITORY}/{SCRIPT}", script.metric),),
        )  # fmt: skip


def _is_played(folder: Path) -> bool:
    """Whether a folder has zjianyi's harness."""
    path = folder / EVALUATE
    return path.is_file() and all(word in _original.read_text(path) for word in (f"def {POLICY}(", f"{ID} ="))


class Script:
    """A training script without arguments, and its harness. Refused if it is not seen how it is scored."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.is_played = folder, _is_played(folder)
        self.harness = EVALUATE if self.is_played else PREPARE
        texts = [_original.read_text(folder / name) for name in (SCRIPT, self.harness)]
        trees = [_source.parsed(folder / name) for name in (SCRIPT, self.harness)]
        if self.harness.removesuffix(".py") not in _source.imports(trees[0]):
            raise Refused(
                f"{folder}: {SCRIPT} imports no {self.harness.removesuffix('.py')}, so it may not be what is edited "
                "and run: write an environment.toml for it (docs/environments.md)"
            )
        path = folder / INSTRUCTIONS
        self.instructions = _original.read_text(path) if path.is_file() else ""
        self.constants, self.frozen = map(_source.constants, trees)
        self.space = _parameters.guesses(self.constants)
        self.seeds = [name for name in self.constants if _parameters.is_seed(name)]
        self.files, self.not_copied = _original.repository_files(folder)
        if self.is_played:
            self._keep_agent(*texts)
        self.metric, self.direction = self._score()
        data = {Path.home().joinpath(match[1] or "", *re.findall(r"[\w.-]+", match[2]))
                for text in texts for match in HOME.finditer(text)} - {Path.home()}  # fmt: skip
        self.data = sorted(str(place) for place in data if not data & {*place.parents})
        """Folders of the home directory that the programs read: a trial has a home of its own."""
        hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface", "hub")
        self.hub = [str(hub)] if any(HUGGING_FACE & _source.imports(tree) for tree in trees) else []
        """The cache of the Hugging Face hub, if they use it. The token lies beside it and stays out of reach."""
        clocks = [name for name, value in self.frozen.items() if "TIME_BUDGET" in name and type(value) in (int, float)]
        self.clock = clocks[:1]
        """The constant of the harness that holds the training time in seconds, if there is one."""

    def _keep_agent(self, text: str, harness: str) -> None:
        """Have the agent left that is evaluated, and played by the judge."""
        if not isinstance(self.frozen.get(ID), str):
            raise Refused(f'{self.folder / EVALUATE}: {ID} is no plain text: write {ID} = "CartPole-v1"')
        if f"{POLICY}(" not in text:
            raise Refused(
                f"{self.folder / SCRIPT} never calls {POLICY}, so nothing says which agent to judge: call "
                f"{POLICY}(agent, device) at its end"
            )
        self.files |= {f"{REPOSITORY}/{EVALUATE}": harness + KEEP_AGENT}

    def _score(self) -> tuple[str, str]:
        """The metric that the instructions have looked up in the log, and its direction by the words near its name."""
        looked_up = re.search(r"grep\s+(?:-\w+\s+)?[\"']\^?([A-Za-z_]\w*):", self.instructions)
        metric = looked_up[1] if looked_up else ""
        near = " ".join(re.findall(rf"[^.\n]{{0,60}}\b{metric}\b[^.\n]{{0,60}}", self.instructions))
        less = bool(re.search(r"\b(lower|lowest|minimi[sz]e|smallest)\b", near, re.IGNORECASE))
        more = bool(re.search(r"\b(higher|highest|maximi[sz]e|largest)\b", near, re.IGNORECASE))
        if self.is_played:
            return metric or "return", "minimize" if less and not more else "maximize"
        if not metric or less == more:
            raise Refused(
                f"{self.folder / INSTRUCTIONS} does not say whether {metric or 'a metric'} is to be high or low: write "
                "'get the lowest val_loss', and how it is read from the log, such as: grep \"^val_loss:\" run.log"
            )
        return metric, "minimize" if less else "maximize"

    def how(self) -> dict[str, Any]:
        """How the runner runs it: constants are set in a copy of the files, and it ends by its own clock."""
        return {
            "command": ["${interpreter}", "${program}"], "at_end": "finish",
            "own": dict.fromkeys(self.clock, "budget_seconds"),
            "constants": {SCRIPT: [*self.space, *self.seeds], self.harness: self.clock},
            "defaults": {name: self.constants[name] for name in self.space},
            "home": str(Path.home()), "links": self.data,
            "variables": {"HF_HUB_CACHE": self.hub[0], "HF_HUB_OFFLINE": "1"} if self.hub else {},
            "printed": True,
        }  # fmt: skip

    def keys(self) -> dict[str, Any]:
        """The keys of environment.toml."""
        played = {"required_calls": [POLICY], "requires": {"cloudpickle": "pip install cloudpickle"}}
        return {
            "direction": self.direction, "startup_seconds": 120.0,
            "budget_seconds": float(self.frozen[self.clock[0]]) if self.clock else BUDGET_SECONDS,
            "grace_seconds": GRACE_SECONDS, "readable": [*self.data, *self.hub], "space": self.space,
            **(played if self.is_played else {}),
        }  # fmt: skip

    def control(self) -> dict[str, Any] | None:
        """The keys of the judge that plays the agent, where one is evaluated."""
        episodes = self.frozen.get(EPISODES)
        if not self.is_played:
            return None
        return {"id": self.frozen.get(ID), "episodes": episodes if type(episodes) is int else 100, "other_episodes": 0}

    def left(self) -> Iterator[Term]:
        yield from self.not_copied
        for place in (*self.data, *self.hub):
            yield Term(place, "readable, and nothing is downloaded: fill it with the original, as before")
        if not self.seeds:
            why = "every run draws the same numbers, so fresh runs differ only by timing: give it SEED"
            yield Term("no constant SEED in train.py", why)
        if not self.clock:
            yield Term(f"no TIME_BUDGET in {self.harness}", f"train.py must end by itself in {BUDGET_SECONDS:g} s")
