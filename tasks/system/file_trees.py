"""Opening up and removing file trees that an untrusted program wrote. No link is followed."""

from __future__ import annotations

import subprocess
from pathlib import Path


def open_to_all(path: Path) -> None:
    """Let every user read a tree."""
    subprocess.run(["chmod", "-R", "a+rX", "--", str(path)], check=True, capture_output=True)


def remove(path: Path) -> None:
    """Remove a folder, a file or a link, with any permissions, names and depth. Raises OSError."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        path.rmdir()
    except OSError:  # not empty: unlike shutil, these tools handle any depth
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(path)], stderr=subprocess.DEVNULL)
        done = subprocess.run(["rm", "-rf", "--", str(path)], capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"cannot remove {path}: {done.stderr.strip()[:200]}") from None
