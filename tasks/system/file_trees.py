"""Opening up and removing file trees that an untrusted program wrote. No link is followed."""

import subprocess
import zipfile
from pathlib import Path


def open_to_all(path: Path) -> None:
    """Let every user read a tree."""
    subprocess.run(["chmod", "-R", "a+rX", "--", str(path)], check=True, capture_output=True)


def largest_member(archive: str) -> tuple[int, str, str] | None:
    """Bytes, name and checksum of the largest file in a zip archive, for tasks/sandbox/reader.py; None without any."""
    with zipfile.ZipFile(archive) as opened:
        members = [(one.file_size, one.filename, f"{one.CRC:08x}") for one in opened.infolist()]
    return max(members, default=None)


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
