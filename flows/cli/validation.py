"""`nightshift env validate`: everything that can be checked of an environment without training.

What cannot work is refused by the loader, with file, key and remedy. A warning is about what can, and wastes a night.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from environments import Environment
from environments.space import Value
from tasks.importing._parameters import is_seed
from tasks.imports import lacking
from tasks.store import workspace

MORE_IS_BETTER = {"return", "reward", "score", "accuracy", "acc", "success", "win", "winrate", "pass", "f1", "auc"}
MORE_IS_WORSE = {"loss", "error", "mse", "rmse", "mae", "perplexity", "ppl", "bpb", "regret"}
NEGATED = {"neg", "negative", "minus"}
"""Words in names of metrics, of which the last one counts: `val_loss`, `pass@1`, `return/mean`."""


def validate(environment: str, overrides: dict[str, Value], trust: bool) -> dict[str, Any]:
    """What the checks say, as one JSON document. Raises Refused: a check failed, or it asks for more than its folder
    and nobody agrees.
    """
    from flows.spec import permissions
    from flows.spec.campaign_spec import checked_environment

    checked = checked_environment(environment, overrides, trust, here=False)
    keys = ("metric", "direction", "trainer", "budget_seconds", "budget_steps", "cores")
    return {
        "environment": checked.name, "folder": str(checked.folder), **{key: getattr(checked, key) for key in keys},
        "baseline": checked.defaults, "varies": list(checked.space), "asks_for": list(permissions.needed(checked)),
        "warnings": [*warnings(checked), *lacking(checked)],
    }  # fmt: skip


def shown(facts: dict[str, Any], environment: str) -> str:
    """The facts as lines for the terminal; `environment` is the reference that the next command names."""
    lines = [f"{key:<16} {value}" for key, value in facts.items() if key != "warnings"]
    lines += [f"warning: {doubt}" for doubt in facts["warnings"]]
    with_warnings = ", with warnings" * bool(facts["warnings"])
    return "\n".join([*lines, f"valid{with_warnings}; next: nightshift try {shlex.quote(environment)}"])


def placeholders(command: str) -> set[str]:
    """The names in braces of a command line."""
    return {match[1] for match in workspace.PLACEHOLDER.finditer(command) if match[1]}


def warnings(environment: Environment) -> list[str]:
    """What is likely a mistake, a sentence each. Files are searched as text; no code runs and none is parsed."""
    doubts = [*_of_direction(environment), *_of_program(environment)]
    if "out" not in placeholders(str(environment.judge.model_dump().get("eval_cmd", "{out}"))):
        doubts.append("eval_cmd cannot see what training left, and every trial scores alike: add the argument {out}")
    if not environment.space:
        doubts.append(
            "there is no [space] that a search could vary: add a parameter, or have code edited (--proposer agent): "
            'space.lr = { type = "float", low = 1e-4, high = 1.0, log = true, default = 1e-3 }'
        )
    for name in filter(is_seed, environment.space):
        doubts.append(
            f"space.{name}: a search would pick the luckiest seed: take it out of [space], and use the run's own "
            "(seed in config.json, {seed} in train_cmd)"
        )
    return doubts


def _of_direction(environment: Environment) -> Iterator[str]:
    words = re.split(r"[^a-z0-9]+", environment.metric.lower())
    told = [word for word in words if word in MORE_IS_BETTER | MORE_IS_WORSE][-1:]
    opposite = MORE_IS_BETTER if environment.direction == "minimize" else MORE_IS_WORSE
    if opposite.intersection(told) and not NEGATED.intersection(words):
        fact = f'direction = "{environment.direction}" for the metric {environment.metric!r}'
        yield f"{fact}, by its name, keeps the worst trials: turn the direction round, or rename the metric"


def _of_program(environment: Environment) -> Iterator[str]:
    """The parameters that neither the command line nor a file of the program mentions, so that nothing reads them."""
    if environment.remote and not environment.program:  # an endpoint may train a program that it has
        return
    stated = placeholders(environment.train_cmd)
    files = [path for path, _ in workspace.baseline_files(environment) if path.is_file()]
    text = "\n".join(path.read_text("utf-8", "replace") for path in files)
    for name in environment.space:
        if name not in stated and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            yield (
                f"parameter {name!r} stands neither in train_cmd nor in a file of the program, so nothing reads it: "
                f"add an argument such as --{name} {{{name}}}, or read it from config.json"
            )
    switches = [name for name, parameter in environment.space.items() if isinstance(parameter.default, bool)]
    if switches and "type=bool" in text:  # of argparse
        remedy = f"have an action, and write {{{switches[0]}:--{switches[0]}}}"
        yield f"argparse's type=bool takes every text as true, 'False' too: {remedy}"
