"""A night on which every proposal is hostile: the baseline ships, nothing else has changed, and it is all told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.toy import GREEDY, nightshift, status

TOML = """\
metric = "loss"
direction = "minimize"
trainer = "command"
program = ["train.py"]
train_cmd = "python train.py {attack} {out}"
budget_seconds = 1
startup_seconds = 2
grace_seconds = 0.5
judge = "command"
command.eval_cmd = "python judge.py {out} {result}"

[limits]
out_gb = 0.01

[space.attack]
type = "choice"
values = [ATTACKS]
default = "none"
"""

JUDGE = """\
import json, pathlib, sys
x = json.loads(pathlib.Path(sys.argv[1], "model.json").read_text())["x"]
pathlib.Path(sys.argv[2]).write_text(json.dumps({"score": round((x - 1) ** 2, 6)}))
"""

PROGRAM = """\
import glob, json, os, pathlib, sys, time
attack, out = sys.argv[1], pathlib.Path(sys.argv[2])
home = MINE

def train(seconds):
    with (out / "progress.jsonl").open("w", buffering=1) as progress:
        progress.write('{"ready": true}\\n')
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            time.sleep(0.02)
    return 1.6 + int.from_bytes(os.urandom(4)) / 1e18

def model(x):
    (out / "model.json").write_text(json.dumps({"x": x}))

def spoil(pattern):
    for path in glob.glob(pattern, recursive=True):
        for way in (lambda: open(path, "w").close(), lambda: os.remove(path), lambda: os.chmod(path, 0)):
            try:
                way()
            except OSError:
                pass

if attack == "none":
    model(train(0.8))
elif attack == "judge":
    spoil("../../../environment/*"), spoil("../../../campaign.json"), spoil("../../0000/**")
    model(train(0.1) + 1)
elif attack == "files":
    spoil(str(home) + "/**"), spoil(str(home) + "/.*")
    model(train(0.1) + 1)
elif attack == "fake":
    for place in (out, out.parent, pathlib.Path.cwd()):
        try:
            (place / "result.json").write_text('{"score": 0.0}')
        except OSError:
            pass
    print('{"score": 0.0}')
    model(train(0.1) + 1)
elif attack == "written":
    model(1.0)
    (out / "progress.jsonl").write_text('{"ready": true}\\n')  # however long Python takes to start, it was there before
    time.sleep(60)
elif attack == "nan":
    model(float("nan")) or train(0.1)
elif attack == "bomb":
    with (out / "model.json").open("wb") as file:
        for _ in range(64):
            file.write(bytes(2**20)), time.sleep(0.02)
elif attack == "stale":
    model(1.0)
    os.utime(out / "model.json", (1, 1))
    time.sleep(60)
elif attack == "link":
    (out / "model.json").symlink_to("../../../environment/judge.py")
    train(0.1)
elif attack == "copied":
    model(1.0)
    os._exit(0)
"""

REASONS = {
    "judge": ("discard", "not better"),
    "files": ("discard", "not better"),
    "fake": ("discard", "not better"),
    "written": ("discard", "not learned"),
    "nan": ("crash", "a finite number"),
    "bomb": ("crash", "left more than 0.01 GiB"),
    "stale": ("crash", "older than"),
    "link": ("crash", "link"),
    "copied": ("crash", "byte for byte"),
}


@pytest.mark.slow
def test_after_a_night_of_hostile_proposals_the_baseline_ships_and_nothing_else_has_changed(
    tmp_path: Path, home: Path, server: str
) -> None:
    mine, folder = tmp_path / "mine", tmp_path / "problem"
    (mine / "documents").mkdir(parents=True)
    (mine / ".bashrc").write_text("alias ll='ls -l'\n")
    (mine / "documents/thesis.tex").write_text("years of work")
    folder.mkdir()
    attacks = ["none", *REASONS]
    (folder / "environment.toml").write_text(TOML.replace("ATTACKS", ", ".join(f'"{a}"' for a in attacks)))
    (folder / "train.py").write_text(PROGRAM.replace("MINE", f"pathlib.Path({str(mine)!r})"))
    (folder / "judge.py").write_text(JUDGE)
    earlier = home / "earlier"
    earlier.mkdir(parents=True)
    (earlier / "campaign.json").write_text('{"seed": 7}')
    frozen = ("environment", "program", "campaign.json")

    def everything() -> dict[str, str]:
        ours = {path: text for path, text in checksums(tmp_path).items() if not path.startswith("runs/night/")}
        campaign = checksums(home / "night") if (home / "night").is_dir() else {}
        # The server's files, the page of all campaigns and the fonts of the engine's own pictures are nobody's attack.
        spared = ("/.prefect/", "runs/index.html", "mine/.cache/matplotlib/", ".lock")
        return {path: text for path, text in ours.items() if not any(part in path for part in spared)} | {
            path: text for path, text in campaign.items() if path.startswith(frozen)
        }

    before = everything()
    done = nightshift(
        "run", str(folder), "--name", "night", "--proposer", "grid", "--tracking", "off", "--trials", "20",
        *GREEDY, server=server, HOME=str(mine),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = status("night")
    assert (document["state"], document["shipped"]) == ("finished", "baseline")
    assert document["champion"]["trial"] == document["baseline"]["trial"] == 0
    told = {trial["params"]["attack"]: (trial["verdict"], trial["reason"]) for trial in document["trials"]}
    for attack, (verdict, reason) in REASONS.items():
        assert told[attack][0] == verdict and reason in told[attack][1], (attack, told[attack])
    if document["isolation"] != "none":
        after = everything()
        assert {path: after.get(path) for path in before} == before
        assert {path for path in after if path not in before} <= {p for p in after if p.startswith(frozen)}
        assert (home / "night/environment/judge.py").read_text() == JUDGE


def checksums(folder: Path) -> dict[str, str]:
    """Path -> digest of every file below a folder, its mode included."""
    return {
        path.relative_to(folder).as_posix(): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
