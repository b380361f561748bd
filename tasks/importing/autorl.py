"""A folder like zjianyi/autoRL: train.py with an agent, and evaluate.py that plays it in a Gymnasium environment.

The control judge plays the agent that train.py hands to `evaluate_policy`; what train.py prints is no score.
"""

from __future__ import annotations

import ast
from pathlib import Path

from environments import FILE
from environments.plugins import Refused
from tasks.importing import Imported, Importer, Recognised, Term, _runner, _script, environment_toml
from tasks.importing import _repository as repository
from tasks.importing.reading import results_tsv

HARNESS, EVALUATE, ID, EPISODES = "evaluate", "evaluate_policy", "ENV_ID", "NUM_EVAL_EPISODES"
ORIGIN = "a folder like zjianyi/autoRL (train.py, evaluate.py with evaluate_policy)"
MOST_EPISODES = 1000
KEEP_AGENT = f"""

# Added by `nightshift env import`: each agent that is evaluated is left in a file, and the judge plays the last one.
_evaluate_as_before = {EVALUATE}


def {EVALUATE}(agent, device="cpu", *args, **options):
    import os

    import cloudpickle

    path = os.path.join(os.environ["AR_MODEL_DIR"], "agent.pkl")
    with open(path + ".half", "wb") as file:
        cloudpickle.dump((agent, str(device)), file)
    os.replace(path + ".half", path)
    return _evaluate_as_before(agent, device, *args, **options)
"""


class AutoRL(Importer):
    """A folder like zjianyi/autoRL: train.py, and evaluate.py with evaluate_policy and ENV_ID."""

    def recognise(self, place: str) -> Recognised:
        folder = Path(place)
        missing = [name for name in (_script.SCRIPT, f"{HARNESS}.py") if not (folder / name).is_file()]
        if missing:
            return Recognised(False, f"no {', no '.join(missing)} in it")
        harness = repository.read_text(folder / f"{HARNESS}.py")
        lacking = [word for word in (f"def {EVALUATE}(", f"{ID} =") if word not in harness]
        if lacking:
            return Recognised(False, f"{HARNESS}.py has no `{'`, no `'.join(lacking)}`")
        return Recognised(True, f"{HARNESS}.py has {EVALUATE} and {ID}")

    def convert(self, place: str) -> Imported:
        script = _script.read(Path(place), HARNESS)
        gym_id = script.frozen.get(ID)
        if not isinstance(gym_id, str):
            raise Refused(f'{script.folder / HARNESS}.py: {ID} is no plain text: write {ID} = "CartPole-v1"')
        if not any(
            isinstance(node, ast.Call) and ast.unparse(node.func).endswith(EVALUATE) for node in ast.walk(script.tree)
        ):
            raise Refused(
                f"{script.folder / _script.SCRIPT} never calls {EVALUATE}, so nothing says which agent to judge: "
                f"call {EVALUATE}(agent, device) at its end"
            )
        harness = repository.read_text(script.folder / f"{HARNESS}.py")
        metric = repository.metric_name(script.instructions, repository.read_text(script.folder / _script.SCRIPT))
        episodes = script.frozen.get(EPISODES)
        judged = min(int(episodes), MOST_EPISODES) if isinstance(episodes, int) and episodes > 0 else 100
        keys = _script.keys(script, metric, "maximize")
        keys["program"].append("act.py")
        keys["requires"]["cloudpickle"] = "pip install cloudpickle"
        keys |= {
            "device": "cpu", "required_calls": [EVALUATE], "judge": "control",
            "control": {"id": gym_id, "episodes": judged, "other_episodes": 0, "deterministic": True},
        }  # fmt: skip
        del keys["command"]
        history, of_history = results_tsv.history(script.folder / results_tsv.FILE, metric)
        return Imported(
            name=script.name,
            origin=ORIGIN,
            files={
                **script.files,
                f"{_runner.REPOSITORY}/{HARNESS}.py": harness + KEEP_AGENT,
                **_runner.files(_script.how(script)),
                "act.py": _runner.program("act.py"),
                **_script.instructions(script, ORIGIN),
                FILE: environment_toml(keys, f"Imported by `nightshift env import` from {ORIGIN}."),
            },
            carried=(
                *_script.carried(script),
                Term(f'{ID} = "{gym_id}"', "control.id"),
                Term(f"{EPISODES} = {judged}", "control.episodes; their seeds are drawn anew, not 0, 1, 2, ..."),
                Term(
                    f"{EVALUATE}(agent, device)",
                    "names the agent, and leaves it for the control judge, which plays agent.get_action in a process "
                    "that sees no reward",
                ),
                Term(metric, f"metric {metric}: the mean return that the judge counts"),
            ),
            left=(
                *_script.left(script),
                *of_history,
                Term(f"the line '{metric}: ...' of train.py", "shown in the log, and no score"),
            ),
            history=history,
        )
