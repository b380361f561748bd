"""Records a night for `nightshift replay`: `python -m tests.support.recording CAMPAIGN flows/night.json.gz`."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

from flows.report.facts import shareable
from tasks.store.ledger import Ledger

PARTS = (
    "campaign.json", "spec.toml", "events.jsonl", "results.tsv", "episode.json", "episode.gif", "environment/*",
    "trials/*/proposal.json", "trials/*/trial.json", "trials/*/diff.patch", "trials/*/judge.txt",
    "trials/*/workspace/config.json", "trials/*/out/progress.jsonl", "certificates/*.json",
    "certificates/*/workspace/config.json", "ablations/*.json",
)  # fmt: skip
"""What live view and report need. Of logs and configurations only the time counts, so they are recorded empty."""
FOLDERS = re.compile(r"(?<![\w.~/-])/(?:[\w.@+-]+/)+")
"""Those above a file of this machine."""
PRIVATE = re.compile(r'"(judge_key|host|identity|page|flow_run_id)": *"[^"]*"')


def record(ledger: Ledger, file: Path) -> None:
    """Write a campaign that does not run into a recording, without secrets and the folders of this machine."""
    recording, lives = {}, [event for event in ledger.events() if event["event"] == "life"]
    for path in sorted(path for part in PARTS for path in ledger.path.glob(part) if path.is_file()):
        content, written = b"" if path.name in ("judge.txt", "config.json") else path.read_bytes(), path.stat().st_mtime
        if path.suffix != ".gif":
            text = PRIVATE.sub(r'"\1": ""', shareable(content.decode(errors="replace")))
            content = (text if path.parent.name == "environment" else FOLDERS.sub("…/", text)).encode()
        made = [(running(lives, moment), text) for moment, text in chunks(path, content, written)]
        recording[str(path.relative_to(ledger.path))] = made
    file.write_bytes(gzip.compress(json.dumps(recording).encode(), mtime=0))


def running(lives: list[dict[str, float]], moment: float) -> float:
    """Seconds that a campaign of these lives had run at a moment: between two of them it may have waited for hours."""
    began = max((life for life in lives if life["time"] <= moment), key=lambda life: life["time"], default=lives[0])
    return began["spent_before"] + moment - began["time"]


def chunks(path: Path, content: bytes, written: float) -> list[tuple[float, str]]:
    """What was written to a file, with the times; of files that grow, each line."""
    if path.suffix != ".jsonl":
        return [(written, content.decode("latin-1"))]
    lines = content.splitlines(keepends=True)
    if path.name == "progress.jsonl":  # some forty of a trial
        lines = lines[:: 1 + len(lines) // 40]
    said = [float(facts.get("time", facts.get("elapsed", 0.0))) for facts in map(json.loads, lines)]
    began = 0.0 if path.name == "events.jsonl" else written - max(said)
    return [(began + at, line.decode("latin-1")) for at, line in zip(said, lines, strict=True)]


if __name__ == "__main__":
    record(Ledger.open(sys.argv[1]), Path(sys.argv[2]))
