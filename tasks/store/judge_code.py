"""The digest of a judge's code: a campaign goes on only while its judge means what it meant at the start."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

from environments.judges import Judge
from environments.score import Score


def judge_digest(judge: Judge) -> str:
    """SHA-256 of the judge's file, of the judges that it extends, of what judges share, and of the score."""
    classes = [each for each in type(judge).__mro__ if issubclass(each, Judge) and each is not Judge]
    own = [Path(inspect.getfile(each)) for each in classes]
    code = dict.fromkeys([*own, *sorted(own[0].parent.glob("_*.py")), Path(inspect.getfile(Score))])
    return hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()
