"""Opening and removing what an untrusted program left behind: any tree at all, and nothing beside it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def open_to_all(path: Path) -> None:
    """Let every user read a tree; no link is followed."""
    subprocess.run(["chmod", "-R", "a+rX", "--", str(path)], check=True, capture_output=True)


def remove(path: Path) -> None:
    """Remove a folder, a file or a link, whatever is in it: no permissions, odd names, ten thousand levels.

    Raises:
        OSError: it cannot be removed.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        path.rmdir()
    except OSError:  # not empty: these tools know every depth, and follow no link
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(path)], stderr=subprocess.DEVNULL)
        done = subprocess.run(["rm", "-rf", "--", str(path)], capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"cannot remove {path}: {done.stderr.strip()[:200]}") from None
