"""What a trial may use up: the [limits] of an environment. Each has a default that an ordinary trial never meets."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Bounds on one program and all of its processes together."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    memory_gb: float | None = Field(
        default=None, ge=0.001, le=1e6, description="Memory in GiB; absent: three quarters of the machine's."
    )
    processes: int = Field(
        default=1024, ge=8, le=4_194_304, description="Processes and threads that may be alive at one time."
    )
    file_gb: float = Field(default=16, ge=0.001, le=1e6, description="Size of the largest file, in GiB.")
    out_gb: float = Field(default=16, gt=0, le=1e6, description="Size of all that it leaves in out/, in GiB.")
    out_files: int = Field(default=10_000, ge=1, description="Files and folders that it may leave in out/.")
    scratch_gb: float = Field(
        default=1, ge=0.001, le=1e6, description="Temporary files, and shared memory besides, in GiB each."
    )
    output_mb: float = Field(default=64, gt=0, le=1e6, description="What it may print, in MiB.")
    steps_per_second: float = Field(
        default=1e7, gt=0, description="Training steps per second that can be believed."
    )
    least_seconds: float | None = Field(
        default=None,
        ge=0,
        description="Training time below which nothing can have been learned; absent: a thousandth of the budget.",
    )
