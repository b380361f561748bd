"""A folder like karpathy/autoresearch: train.py, prepare.py and program.md, scored by a line that train.py prints."""

from __future__ import annotations

from pathlib import Path

from environments import FILE
from tasks.importing import Imported, Importer, Recognised, Term, _script, environment_toml
from tasks.importing import _repository as repository
from tasks.importing._frozen_judge import proposal
from tasks.importing.reading import script_history

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
        keys = {
            **_script.keys(script, metric, direction),
            "judge": "command",
            "command": {"eval_cmd": f"python judge.py {{out}} {{result}} {metric}"},
        }
        history = script_history.history(script)
        return Imported(
            history=history,
            name=script.name,
            origin=ORIGIN,
            files={
                **_script.files(script, ORIGIN),
                "judge.py": (_script.PROGRAMS / "metric_line.py").read_text(),
                **proposal(script.folder / f"{HARNESS}.py", metric),
                FILE: environment_toml(keys, f"Imported by `nightshift env import` from {ORIGIN}."),
            },
            carried=(
                *_script.carried(script),
                *script_history.carried(history),
                Term(f'grep "^{metric}:" run.log', f"metric {metric} ({direction}), read by judge.py from out/run.log"),
                Term("other lines of the summary", "figures beside the score; [guards] can bound them"),
            ),
            left=tuple(_script.left(script)),
            warnings=(
                f"the score is the line '{metric}: ...' that {repository.REPOSITORY}/{_script.SCRIPT} prints, and "
                f"that is the file which is edited: an edit can print any number. frozen_judge.py proposes a judge "
                f"that measures by itself; until then read the diff of every champion (--approval code)",
            ),
        )
