"""A proposal of a judge that measures by itself, for a repository whose edited script prints its own score."""

from __future__ import annotations

import ast
from pathlib import Path

from tasks.importing import _repository as repository

NAME = "frozen_judge.py"
TEMPLATE = '''\
"""Proposal: a judge that measures {metric} by itself, in place of the line that train.py prints. It is not used yet.

1. Let {repository}/train.py save its weights where training ends:
       torch.save(model.state_dict(), OUT / "weights.pt")      # OUT: config["out"] of ../config.json
2. Move the model's class into a file that is not in `editable`, such as {repository}/model.py, and import it in
   train.py and below. A judge that imports the edited file would run the code that it scores.
3. Put this into environment.toml, in place of the present eval_cmd, with `readable` for the data:
       [command]
       eval_cmd = "python {name} {{out}} {{result}}"
"""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "{repository}"))
from {harness} import {function}
from model import make_model  # step 2

out, result = Path(sys.argv[1]), Path(sys.argv[2])
model = make_model()
model.load_state_dict(torch.load(out / "weights.pt", weights_only=True))  # never unpickle what a trial left
model.eval()
score = {function}({arguments})  # as train.py calls it
result.write_text(json.dumps({{"score": float(score)}}))
'''


def proposal(harness: Path, metric: str) -> dict[str, str | Path]:
    """The file with the proposal, around the function of the harness that evaluates."""
    functions = [node for node in repository.parsed(harness).body if isinstance(node, ast.FunctionDef)]
    evaluating = [node for node in functions if "eval" in node.name]
    function = evaluating[0] if evaluating else None
    text = TEMPLATE.format(
        metric=metric, repository=repository.REPOSITORY, name=NAME, harness=harness.stem,
        function=function.name if function else "evaluate",
        arguments=", ".join(each.arg for each in function.args.args) if function else "model",
    )  # fmt: skip
    return {NAME: text}
