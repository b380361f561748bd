"""Recipes: what an environment needs to have made once, before its first run. The [prepare] of environment.toml:

[prepare]
program = "prepare.py"          # run as `python prepare.py FOLDER`; settings.json lies in FOLDER
files = ["taskset.py"]          # of the environment, that the program reads besides
helpers = ["making"]            # of environments/helpers, which it may import
settings = { questions = 5000 }

It writes two folders into FOLDER: `data`, which training may read, and `judge`, which only the judge can. What it has
made is kept under the hash of the recipe, and made once for all campaigns (tasks/recipes/preparing.py says where and
how).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from environments import plugins
from environments.plugins import Refused

VERSION = 1
"""Of what a recipe's folder looks like; part of every digest."""
HELPERS, FROZEN = "environments.helpers", "helpers"
"""Where helpers are: of ours, and in the folder of a frozen environment."""
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
    helpers: tuple[Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")], ...] = Field(
        default=(), description="Modules of Nightshift's own that it imports, by name."
    )
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

    def texts(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """The files that it is made of, and what each is called where it runs.

        Args:
            folder: of the environment.

        Raises:
            Refused: there is no such helper, or the environment has a file of that name.
        """
        for name in (self.program, *self.files):
            yield folder / name, name
        for helper, path in self.helper_files(folder):
            yield path, self._beside(helper)

    def helper_files(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """Each helper by name, and where it is: the copy that was frozen with the environment, or else ours.

        Raises:
            Refused: there is no such helper, or the environment has a file of that name.
        """
        for helper in self.helpers:
            if not (path := folder / FROZEN / f"{helper}.py").is_file():
                plugins.require(helper, plugins.names(HELPERS), "helper", f"{folder}: [prepare] helpers")
                path = plugins.folder(HELPERS) / f"{helper}.py"
            if Path(self._beside(helper)) in map(Path, (self.program, *self.files)):
                raise Refused(
                    f"{folder}: [prepare] helpers: {helper!r} would lie in place of its own {self._beside(helper)}: "
                    "rename that"
                )
            yield helper, path

    def _beside(self, helper: str) -> str:
        """What a helper is called, so that its program can import it."""
        return (Path(self.program).parent / f"{helper}.py").as_posix()

    def digest(self, texts: Iterable[tuple[Path, str]]) -> str:
        """16 hexadecimal digits, of the recipe's files and of its settings.

        Args:
            texts: its files, and what each is called, as `texts` has them.

        Raises:
            Refused: one of them is no file.
        """
        hashed = hashlib.sha256(f"{VERSION} {json.dumps(self.settings, sort_keys=True)}".encode())
        for path, name in texts:
            if not path.is_file():
                raise Refused(f"{path}: a recipe is made of files, name each one under [prepare] files")
            text = path.read_bytes()
            hashed.update(f"\n{name} {len(text)}\n".encode() + text)
        return hashed.hexdigest()[:16]
