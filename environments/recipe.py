"""Recipes: a program that makes an environment's data once, before its first run. The [prepare] of environment.toml.

It writes two folders into the folder that it is given: `data`, which training may read, and `judge`, which only the
judge reads. The output is stored under the hash of the recipe and shared by all campaigns (tasks/preparing.py).
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue

from environments import plugins
from environments.plugins import Refused

HELPERS = "environments.helpers"
DATA, JUDGE, SETTINGS = "data", "judge", "settings.json"
TRAIN, POOLS = "train", ("search", "confirm", "report")
"""Files of questions, NAME.jsonl: the training questions in `data`, the judge's in `judge`."""


class Recipe(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A program that makes the data for training and judging: questions, a base model."""

    program: str = Field(default="prepare.py", description="File of the environment, run as `python FILE FOLDER`.")
    files: tuple[str, ...] = Field(default=(), description="More files of the environment that it reads.")
    helpers: tuple[Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")], ...] = Field(
        default=(), description="Modules of environments/helpers that it imports, by name."
    )
    settings: dict[str, JsonValue] = Field(default={}, description="Content of its settings.json.")
    seconds: float = Field(default=3600, gt=0, le=7 * 86_400, description="Longest duration, in seconds.")
    disk_gb: float = Field(default=1, gt=0, le=1e6, description="How much it may write, in GiB.")
    network: bool = Field(default=False, description="Whether it may use the network.")

    def texts(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """The recipe's files, and the name of each where it runs; `folder` is the environment's. Raises Refused."""
        yield from ((folder / name, name) for name in (self.program, *self.files))
        beside = Path(self.program).parent  # where the program imports them from
        for helper in self.helpers:
            plugins.require(helper, plugins.names(HELPERS), "helper", f"{folder}: [prepare] helpers")
            name = (beside / f"{helper}.py").as_posix()
            frozen = folder / name  # with a campaign, which goes on with the one that it began with
            yield frozen if frozen.is_file() else plugins.folder(HELPERS) / f"{helper}.py", name

    def digest(self, folder: Path) -> str:
        """Digest of the recipe's files and settings, 16 hexadecimal digits. Raises Refused."""
        hashed = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode())
        for path, name in self.texts(folder):
            if not path.is_file():
                raise Refused(f"{path}: a recipe is made of files, name each one under [prepare] files")
            text = path.read_bytes()
            hashed.update(f"\n{name} {len(text)}\n".encode() + text)
        return hashed.hexdigest()[:16]
