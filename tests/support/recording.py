"""Records a night for `nightshift replay`: `python -m tests.support.recording CAMPAIGN flows/night.zip`."""

from __future__ import annotations

import re
import sys
import time
import zipfile
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
"""Facts that are nobody's business."""


def record(ledger: Ledger, file: Path) -> None:
    """Write a campaign that does not run into a recording, without secrets and the folders of this machine."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as recording:
        for path in sorted(path for part in PARTS for path in ledger.path.glob(part) if path.is_file()):
            info = zipfile.ZipInfo(str(path.relative_to(ledger.path)), time.gmtime(path.stat().st_mtime)[:6])
            content = b"" if path.name in ("judge.txt", "config.json") else path.read_bytes()
            if path.suffix != ".gif":
                text = PRIVATE.sub(r'"\1": ""', shareable(content.decode(errors="replace")))
                content = (text if path.parent.name == "environment" else FOLDERS.sub("…/", text)).encode()
            recording.writestr(info, content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    record(Ledger.open(sys.argv[1]), Path(sys.argv[2]))
