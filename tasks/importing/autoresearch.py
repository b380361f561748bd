"""Folders like karpathy/autoresearch and zjianyi/autoRL: train.py, which an agent edits, beside a frozen harness.

With karpathy's prepare.py the score is a line that train.py prints. With zjianyi's evaluate.py the control judge plays
the agent that train.py hands to `evaluate_policy`, and what train.py prints is no score.
"""

import os
import re
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Term, _original, _parameters, _runner
from tasks.importing._original import REPOSITORY

SCRIPT, INSTRUCTIONS = "train.py", "program.md"
PREPARE, EVALUATE = "prepare.py", "evaluate.py"
POLICY, ID, EPISODES = "evaluate_policy", "ENV_ID", "NUM_EVAL_EPISODES"
GRACE_SECONDS = 300.0
"""For what a script does after its training, such as its own evaluation: as long as karpathy's gives it."""
CACHED = re.compile(r"\.cache\W+([\w-][\w.-]*)")
"""A folder of the cache below the home directory, as in `os.path.join(home, ".cache", "data")`."""
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


def read(place: str) -> Imported | str:
    """A folder with train.py beside prepare.py and program.md, or beside evaluate.py with evaluate_policy."""
    folder = Path(place)
    if (folder / "config.yaml").is_file():
        return "it has a config.yaml, so it is of another kind"
    is_played = (folder / EVALUATE).is_file() and f"def {POLICY}(" in _original.read_text(folder / EVALUATE)
    wanted = [SCRIPT] if is_played else [SCRIPT, PREPARE, INSTRUCTIONS]
    if missing := [name for name in wanted if not (folder / name).is_file()]:
        return f"no {', no '.join(missing)} in it"
    harness = EVALUATE if is_played else PREPARE
    texts = [_original.read_text(folder / name) for name in (SCRIPT, harness)]
    trees = [_original.parsed(folder / name) for name in (SCRIPT, harness)]
    if harness.removesuffix(".py") not in _original.imports(trees[0]):
        raise Refused(
            f"{folder}: {SCRIPT} imports no {harness.removesuffix('.py')}, so it may not be what is edited "
            "and run: write an environment.toml for it (docs/environments.md)"
        )
    page = folder / INSTRUCTIONS
    instructions = _original.read_text(page) if page.is_file() else ""
    constants, frozen = map(_original.constants, trees)
    space, seeds = _parameters.guesses(constants), [name for name in constants if _parameters.is_seed(name)]
    metric, direction = ("return", "maximize") if is_played else _score(page, instructions)
    needs_hub = any(HUGGING_FACE & _original.imports(tree) for tree in trees)
    # The hub's token lies beside its cache and stays out of reach.
    hub = [str(Path(os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface", "hub"))] if needs_hub else []
    named = {name for text in texts for name in CACHED.findall(text)} - {"huggingface"}
    data = sorted(str(Path.home() / ".cache" / name) for name in named)  # a trial has a home of its own
    clock = [name for name, value in frozen.items() if "TIME_BUDGET" in name and type(value) in (int, float)][:1]
    files, left = _original.repository_files(folder)
    left += [Term(each, "readable, and nothing is downloaded: fill it with the original") for each in (*data, *hub)]
    keys: dict[str, Any] = {
        "direction": direction, "startup_seconds": 120.0, "grace_seconds": GRACE_SECONDS,
        "readable": [*data, *hub], "space": space,
    }  # fmt: skip
    if clock:
        keys["budget_seconds"] = float(frozen[clock[0]])
    if is_played:
        keys |= {"required_calls": [POLICY], "requires": {"cloudpickle": "pip install cloudpickle"}}
        files[f"{REPOSITORY}/{EVALUATE}"] = texts[1] + KEEP_AGENT
    how = {
        "command": ["${interpreter}", "${program}"], "at_end": "finish",
        "own": dict.fromkeys(clock, "budget_seconds"), "constants": {SCRIPT: [*space, *seeds], harness: clock},
        "links": {f"~/.cache/{Path(folder).name}": folder for folder in data},
        "variables": {"HF_HUB_CACHE": hub[0], "HF_HUB_OFFLINE": "1"} if hub else {}, "printed": True,
    }  # fmt: skip
    return _runner.imported(
        folder.resolve().name, f"a folder with {SCRIPT} and {harness}", SCRIPT, instructions,
        program=folder / SCRIPT,
        metric=metric,
        how=how,
        keys=keys,
        control=_control(folder, texts[0], frozen) if is_played else None,
        originals=files,
        seeds=seeds,
        left=left,
    )  # fmt: skip


def _score(page: Path, instructions: str) -> tuple[str, str]:
    """The metric that the instructions have looked up in the log, and its direction by the words near its name."""
    looked_up = re.search(r"grep\s+(?:-\w+\s+)?[\"']\^?([A-Za-z_]\w*):", instructions)
    metric = looked_up[1] if looked_up else "a metric"
    near = " ".join(re.findall(rf"[^.\n]{{0,60}}\b{metric}\b[^.\n]{{0,60}}", instructions))
    less = bool(re.search(r"\b(lower|lowest|minimi[sz]e|smallest)\b", near, re.IGNORECASE))
    more = bool(re.search(r"\b(higher|highest|maximi[sz]e|largest)\b", near, re.IGNORECASE))
    if not looked_up or less == more:
        raise Refused(
            f"{page} does not say whether {metric} is to be high or low: write 'get the lowest val_loss' "
            'there, and how it is read from the log, such as: grep "^val_loss:" run.log'
        )
    return metric, "minimize" if less else "maximize"


def _control(folder: Path, script: str, frozen: dict[str, Any]) -> dict[str, Any]:
    """The keys of the judge that plays the agent. Refused where none is seen."""
    env_id, episodes = frozen.get(ID), frozen.get(EPISODES)
    if not isinstance(env_id, str) or f"{POLICY}(" not in script:
        raise Refused(
            f'{folder}: nothing says what to judge: {EVALUATE} has to state {ID} = "CartPole-v1", and '
            f"{SCRIPT} to call {POLICY}(agent, device) at its end"
        )
    return {"id": env_id, "episodes": episodes if type(episodes) is int else 100, "other_episodes": 0}
