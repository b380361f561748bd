"""Runs a command in a copy of the user's project that it may write to.

    python in_a_copy.py train OUT [LINK ...] -- COMMAND...
    python in_a_copy.py evaluate RESULT [LINK ...] -- COMMAND...

The project lies in the folder `project` beside this file, and what is too large to copy is linked. An evaluation's last
number becomes its score. The user's own Python runs this, so it is written for old ones and imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SPREAD = re.compile(r"(\+/-|\+-|±)\s*[-+.\deE]+%?")
"""What stands behind a mean as its error."""
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)(?![\w.])", re.I)
RESULTS = ("score", "units", "sources")


def enter_copy(links: list[str]) -> None:
    folder = Path(tempfile.mkdtemp()) / "project"
    shutil.copytree(Path(__file__).resolve().parent / "project", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
    for link in links:
        (folder / Path(link).name).symlink_to(link)
    os.chdir(folder)


def start(command: list[str], stdout: int | None = None) -> subprocess.Popen[str]:
    if re.match(r"python[\d.]*$", Path(command[0]).name):  # whichever was named, it runs this already
        command = [sys.executable, *command[1:]]
    signal.signal(signal.SIGTERM, lambda *_: None)  # the command gets it too, and once is enough: it is to save then
    return subprocess.Popen(command, stdout=stdout, universal_newlines=True)


def end_like(status: int) -> None:
    if status:
        sys.exit(status if status > 0 else 128 - status)


def train(out: Path, command: list[str]) -> None:
    out.mkdir()
    status = start(command).wait()
    if not any(out.iterdir()):
        out.rmdir()  # a library may have added a suffix: OUT.zip is found under the name OUT then
    end_like(status)


def evaluate(result: Path, command: list[str]) -> None:
    process = start(command, subprocess.PIPE)
    lines: list[str] = []
    for line in process.stdout or ():
        print(line, end="")
        lines.append(line.strip())
    end_like(process.wait())
    result.write_text(json.dumps(result_of(lines)))


def result_of(lines: list[str]) -> dict[str, object]:
    for line in reversed(lines):
        try:
            result = json.loads(line)
        except ValueError:
            result = None
        if isinstance(result, dict) and any(name in result for name in RESULTS):
            return result
        numbers = NUMBER.findall(SPREAD.sub("", line))
        if numbers:
            return {"score": float(numbers[-1])}
    sys.exit('the evaluation printed no number: its last one is the score, or {"score": number}')


if __name__ == "__main__":
    end = sys.argv.index("--")
    enter_copy(sys.argv[3:end])
    (train if sys.argv[1] == "train" else evaluate)(Path(sys.argv[2]), sys.argv[end + 1 :])
