"""The [limits] of an environment: the resources that a trial may use. Ordinary trials never reach the defaults."""

from pydantic import BaseModel, Field


class Limits(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Limits of one program with all of its processes."""

    memory_gb: float | None = Field(
        default=None, ge=0.001, le=1e6, description="Memory, in GiB; absent: three quarters of the machine's."
    )
    processes: int = Field(default=1024, ge=8, le=4_194_304, description="Processes and threads alive at one time.")
    file_gb: float = Field(default=8, ge=0.001, le=1e6, description="Size of one file, in GiB.")
    out_gb: float = Field(default=8, gt=0, le=1e6, description="Size of out/, in GiB.")
    out_files: int = Field(default=10_000, ge=1, description="Files and folders in out/.")
    scratch_gb: float = Field(
        default=1, ge=0.001, le=1e6, description="Temporary files, and likewise shared memory, in GiB."
    )
    output_mb: float = Field(default=64, gt=0, le=1e6, description="Printed output, in MiB.")
    least_seconds: float | None = Field(
        default=None, ge=0, description="Shortest plausible training, in seconds; absent: a thousandth of the budget."
    )
