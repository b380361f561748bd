"""Atomic file replacement."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_atomic(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader sees the old text or the new one, even after kill -9."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    temporary.write_text(text)
    temporary.replace(path)
