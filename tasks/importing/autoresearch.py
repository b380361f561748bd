"""A folder like karpathy/autoresearch: train.py, prepare.py and program.md, scored by a line that train.py prints."""

from __future__ import annotations

from pathlib import Path

from environments import FILE
from tasks.importing import Imported, Importer, Recognised, Term, _runner, _script, environment_toml
from tasks.importing import _repository as repository
from tasks.importing.reading import results_tsv

HARNESS = "prepare"
ORIGIN = "a folder like karpathy/autoresearch (train.py, prepare.py, program.md)"


class Autoresearch(Importer):
    """A folder like karpathy/autoresearch: train.py, prepare.py and program.md."""

    def recognise(self, place: str) -> Recognised:
        folder = Path(place)
        wanted = [_script.SCRIPT, f"{HARNESS}.py", _script.INSTRUCTIONS]
        missing = [name for name in wanted if not (folder / name).is_file()]
        if missing:
            return Recognised(False, f"no {', no '.join(missing)} in it")
        if (folder / "config.yaml").is_file():
            return Recognised(False, "it has a config.yaml, so it is of another kind")
        return Recognised(True, f"it has {', '.join(wanted)}")

    def convert(self, place: str) -> Imported:
        script = _script.read(Path(place), HARNESS)
        metric = repository.metric_name(script.instructions, repository.read_text(script.folder / _script.SCRIPT))
        direction = repository.direction(metric, script.instructions)
        history, of_history = results_tsv.history(script.folder / results_tsv.FILE, metric)
        how = {**_script.how(script), "metric": metric, "name": metric, "printed": True}
        return Imported(
            name=script.name,
            origin=ORIGIN,
            files={
                **script.files,
                **_runner.files(how),
                **_script.instructions(script, ORIGIN),
                FILE: environment_toml(
                    _script.keys(script, metric, direction), f"Imported by `nightshift env import` from {ORIGIN}."
                ),
            },
            carried=(
                *_script.carried(script),
                Term(f'grep "^{metric}:" run.log', f"metric {metric} ({direction}): the last such line that it prints"),
            ),
            left=(*_script.left(script), *of_history),
            warnings=(_runner.warning(f"{_runner.REPOSITORY}/{_script.SCRIPT}", metric),),
            history=history,
        )
