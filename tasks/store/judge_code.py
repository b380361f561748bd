"""The digest of a judge's code, the same for all versions of it that judge alike.

A campaign goes on only while its judge means what it meant at the start. Renames and docstrings change bytes, not
meaning, so environments/judges/versions.toml lists the digests of code that judges alike.
"""

from __future__ import annotations

import hashlib
import inspect
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from environments import judges
from environments.judges import Judge
from environments.score import Score


@dataclass(frozen=True)
class JudgeVersion:
    """Code that judges alike, as one or more digests of its bytes."""

    version: str
    """The first version of Nightshift that judged so."""
    digests: tuple[str, ...]
    commit: str = ""
    """The last commit that judged so; empty for the present code."""


def judge_digest(judge: Judge) -> str:
    """The first digest listed for code that judges like this; the digest of its bytes where none is listed."""
    digest = bytes_digest(judge)
    alike = (version.digests for version in versions(judge) if digest in version.digests)
    return next(alike, (digest,))[0]


def bytes_digest(judge: Judge) -> str:
    """SHA-256 of the judge's file, of the judges that it extends, of what judges share, and of the score."""
    classes = [each for each in type(judge).__mro__ if issubclass(each, Judge) and each is not Judge]
    own = dict.fromkeys(Path(inspect.getfile(each)) for each in classes)
    shared = sorted(next(iter(own)).parent.glob("_*.py"))
    code = [*(file for file in own if file not in shared), *shared, Path(inspect.getfile(Score))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()


def versions(judge: Judge) -> tuple[JudgeVersion, ...]:
    """Every version of a bundled judge, the present one last."""
    entries = _listed().get(Path(inspect.getfile(type(judge))).stem, [])
    return tuple(JudgeVersion(entry["version"], tuple(entry["digests"]), entry.get("commit", "")) for entry in entries)


@cache
def _listed() -> dict[str, list[dict[str, str]]]:
    return tomllib.loads(Path(judges.__file__).with_name("versions.toml").read_text())
