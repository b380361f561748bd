"""An nvidia-smi that answers what a test says."""

from __future__ import annotations

import os
from pathlib import Path


def nvidia_smi(folder: Path, script: str) -> str:
    """Put such a command first on the path; the path."""
    folder.mkdir(exist_ok=True)
    command = folder / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}")
    command.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def told(gpu_lines: str, process_lines: str = "") -> str:
    """A script that answers the two questions."""
    return (
        f"case $1 in\n--query-gpu=*) cat <<'END'\n{gpu_lines}\nEND\n;;\n"
        f"--query-compute-apps=*) cat <<'END'\n{process_lines}\nEND\n;;\nesac\n"
    )
