"""In place of tyro in an imported script: its options are the parameters of the trial, the others the file's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from autoresearch_rl.target.progress import emit_ready  # type: ignore[import-not-found]


def cli(options: Callable[..., object], *_: object, **__: object) -> object:
    """The script's options, with the values of the trial. The budget begins here: packages are imported."""
    emit_ready()
    return options(**json.loads(os.environ["AR_PARAMS_JSON"]))
