"""A folder like karpathy/autoresearch: train.py, prepare.py and program.md, scored by a line that train.py prints."""

from __future__ import annotations

from pathlib import Path

from environments import FILE
from tasks.importing import Imported, Importer, Term, _results_tsv, _runner, _script, environment_toml
from tasks.importing._original import REPOSITORY

HARNESS = "prepare"
ORIGIN = "a folder like karpathy/autoresearch (train.py, prepare.py, program.md)"


class Autoresearch(Importer):
    """A folder like karpathy/autoresearch: train.py, prepare.py and program.md."""

    def why_not(self, place: str) -> str:
        if (Path(place) / "config.yaml").is_file():
            return "it has a config.yaml, so it is of another kind"
        return _script.why_not(place, _script.SCRIPT, f"{HARNESS}.py", _script.INSTRUCTIONS)

    def convert(self, place: str) -> Imported:
        script = _script.read(Path(place), HARNESS)
        metric, direction = script.metric, script.direction
        history, of_history = _results_tsv.history(script.folder / _results_tsv.FILE, metric)
        return Imported(
            name=script.name,
            origin=ORIGIN,
            files={
                **script.files,
                **_runner.files({**_script.how(script), "metric": metric, "name": metric, "printed": True}),
                **_runner.instructions(script.name, ORIGIN, _script.SCRIPT, script.instructions),
                FILE: environment_toml(_script.keys(script, direction), ORIGIN),
            },
            carried=(
                *_script.carried(script),
                Term(f'grep "^{metric}:" run.log', f"metric {metric} ({direction}): the last such line that it prints"),
            ),
            left=(*_script.left(script), *of_history),
            warnings=(_runner.warning(f"{REPOSITORY}/{_script.SCRIPT}", metric),),
            history=history,
        )
