"""In place of tyro in an imported script: its options are the parameters of the trial, the others the file's own."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

from autoresearch_rl.target.progress import emit_ready  # type: ignore[import-not-found]


def cli(options: Any, *_: object, **__: object) -> object:
    """The script's options, with the values of the trial. The budget begins here: packages are imported."""
    values, names = json.loads(os.environ["AR_PARAMS_JSON"]), {field.name for field in dataclasses.fields(options)}
    if missing := sorted(values.keys() - names):
        raise SystemExit(f"{options.__name__} in {sys.argv[0]} has no {', '.join(missing)} any more")
    emit_ready()
    return options(**values)
