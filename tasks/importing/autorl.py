"""A folder like zjianyi/autoRL: train.py with an agent, and evaluate.py that plays it in a Gymnasium environment.

The control judge plays the agent that train.py hands to `evaluate_policy`; what train.py prints is no score.
"""

from __future__ import annotations

from pathlib import Path

from environments import FILE
from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _results_tsv, _runner, _script, environment_toml
from tasks.importing._original import REPOSITORY

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

    def why_not(self, place: str) -> str:
        if missing := _script.why_not(place, _script.SCRIPT, f"{HARNESS}.py"):
            return missing
        harness = _original.read_text(Path(place) / f"{HARNESS}.py")
        lacking = [word for word in (f"def {EVALUATE}(", f"{ID} =") if word not in harness]
        return f"{HARNESS}.py has no `{'`, no `'.join(lacking)}`" if lacking else ""

    def convert(self, place: str) -> Imported:
        script = _script.read(Path(place), HARNESS)
        gym_id, episodes = script.frozen.get(ID), script.frozen.get(EPISODES)
        if not isinstance(gym_id, str):
            raise Refused(f'{script.folder / HARNESS}.py: {ID} is no plain text: write {ID} = "CartPole-v1"')
        if f"{EVALUATE}(" not in _original.read_text(script.folder / _script.SCRIPT):
            raise Refused(
                f"{script.folder / _script.SCRIPT} never calls {EVALUATE}, so nothing says which agent to judge: "
                f"call {EVALUATE}(agent, device) at its end"
            )
        judged = min(int(episodes), MOST_EPISODES) if isinstance(episodes, int) and episodes > 0 else 100
        metric = script.metric
        keys = _script.keys(script, "maximize")
        keys["program"].append("act.py")
        del keys["command"]
        keys |= {
            "device": "cpu", "required_calls": [EVALUATE], "requires": {"cloudpickle": "pip install cloudpickle"},
            "judge": "control",
            "control": {"id": gym_id, "episodes": judged, "other_episodes": 0, "deterministic": True},
        }  # fmt: skip
        harness = _original.read_text(script.folder / f"{HARNESS}.py")
        history, of_history = _results_tsv.history(script.folder / _results_tsv.FILE, metric)
        return Imported(
            name=script.name,
            origin=ORIGIN,
            files={
                **script.files,
                f"{REPOSITORY}/{HARNESS}.py": harness + KEEP_AGENT,
                **_runner.files(_script.how(script)),
                "act.py": _runner.PROGRAMS / "act.py",
                **_runner.instructions(script.name, ORIGIN, _script.SCRIPT, script.instructions),
                FILE: environment_toml(keys, ORIGIN),
            },
            carried=(
                *_script.carried(script),
                Term(f"{EPISODES} = {judged}", "control.episodes; their seeds are drawn anew, not 0, 1, 2, ..."),
                Term(f"{EVALUATE}(agent, device)", "leaves the agent for the control judge, which plays get_action"),
            ),
            left=(
                *_script.left(script),
                *of_history,
                Term(f"the line '{metric}: ...' of train.py", "shown in the log, and no score"),
            ),
            history=history,
        )
