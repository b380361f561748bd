"""Recipes: what an environment needs to have made once, before its first run. The [prepare] of environment.toml:

[prepare]
program = "prepare.py"          # run as `python prepare.py FOLDER`; settings.json lies in FOLDER
files = ["taskset.py"]          # of the environment, that the program reads besides
settings = { questions = 5000 }

It writes two folders into FOLDER: `data`, which training may read, and `judge`, which only the judge can. What it has
made is kept under the hash of the recipe, and made once for all campaigns (tasks/preparing.py says where and how).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from environments.plugins import Refused

VERSION = 1
"""Of what a recipe's folder looks like; part of every digest."""
DATA, JUDGE, SETTINGS = "data", "judge", "settings.json"
TRAIN, POOLS = "train", ("search", "confirm", "report")
"""Files of questions, NAME.jsonl: what training may read, in `data`; what the judge asks, in `judge`."""


class Recipe(BaseModel):
    """A program that makes what training and judging need: questions, a base model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    program: str = Field(
        default="prepare.py", description="File of the environment, run as `python FILE FOLDER`."
    )
    files: tuple[str, ...] = Field(default=(), description="Files of the environment that it reads besides.")
    settings: dict[str, Any] = Field(default={}, description="What it reads as settings.json.")
    seconds: float = Field(default=3600, gt=0, le=7 * 86_400, description="How long it may take.")
    disk_gb: float = Field(default=1, gt=0, le=1e6, description="Free space that it needs, in GiB.")
    network: bool = Field(default=False, description="Whether it may use the network.")

    @field_validator("settings")
    @classmethod
    def _is_json(cls, settings: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(settings, allow_nan=False)
        except (TypeError, ValueError) as wrong:
            raise ValueError(f"must be what JSON can hold, for settings.json: {wrong}") from wrong
        return settings

    def texts(self, folder: Path) -> Iterator[Path]:
        """The files that it is made of."""
        for name in (self.program, *self.files):
            yield folder / name

    def digest(self, folder: Path) -> str:
        """16 hexadecimal digits, of the recipe's files in the environment's folder and of its settings.

        Raises:
            Refused: one of them is no file.
        """
        hashed = hashlib.sha256(f"{VERSION} {json.dumps(self.settings, sort_keys=True)}".encode())
        for path in self.texts(folder):
            if not path.is_file():
                raise Refused(f"{path}: a recipe is made of files, name each one under [prepare] files")
            text = path.read_bytes()
            hashed.update(f"\n{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
        return hashed.hexdigest()[:16]
