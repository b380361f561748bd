"""Options of `launch = "slurm"`: what a person says of the jobs besides what the environment needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from environments import plugins

SLURM = "slurm"
"""The value of `launch`."""
OURS = frozenset({
    "array", "comment", "cpus-per-task", "error", "export", "export-file", "help", "input", "job-name", "no-requeue",
    "nodes", "ntasks", "output", "parsable", "requeue", "test-only", "time", "usage", "version", "wait", "wrap",
})  # fmt: skip
"""Options of sbatch that the engine sets, or that would make something else of a job than one run of one trial."""
Name = Annotated[str, Field(pattern=r"^[\w.,:+@/-]*$")]


class SlurmOptions(BaseModel):
    """Which jobs are submitted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    partition: Name = ""
    """Empty: Slurm's default, as for the next two."""
    account: Name = ""
    qos: Name = ""
    gpus: int | None = Field(default=None, ge=0, le=64)
    """GPUs of a job; None: those of the environment if its device is cuda, else none."""
    memory_gb: float | None = Field(default=None, gt=0, le=1e6)
    """Memory of a job, in GiB; None: the environment's limit and what the engine needs, or else Slurm's default."""
    minutes: int | None = Field(default=None, ge=1, le=60 * 24 * 28)
    """Time limit of a job; None: what a run may take at most."""
    sbatch: tuple[str, ...] = ()
    """More options of sbatch, each with its value, such as --constraint=a100."""

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> SlurmOptions:
        """The options from their JSON. Refused if some are invalid."""
        try:
            return cls(**stated)
        except ValidationError as error:
            raise plugins.explain(error, "slurm", cls) from error

    @field_validator("sbatch")
    @classmethod
    def _are_options(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        for line in lines:
            said = re.fullmatch(r"--([a-z][a-z-]*)(=[^\x00-\x1f\x7f]+)?", line)
            if said is None:
                raise ValueError(f"{line!r} is no option of sbatch: write it as --name=value")
            # sbatch takes the beginning of a name for the whole.
            if ours := sorted(name for name in OURS if name.startswith(said[1])):
                raise ValueError(f"{line!r}: the engine sets {ours[0]} itself: leave it out")
        return lines
