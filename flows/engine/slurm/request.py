"""What a job asks of Slurm: resources from the environment, a time limit from its budgets, and a person's options."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from environments import Environment
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.slurm_options import SLURM, SlurmOptions
from tasks.store.launch_files import Step
from tasks.system.redact import URL_PASSWORD, is_secret
from tasks.system.slot import VISIBLE
from tasks.system.variables import variables

ENGINE_GB = 1.0
"""Memory of the engine beside the program's, with its Prefect."""
ENGINE_SECONDS = 300.0
"""Time of a job besides training and judging: imports, a slot, faults that are tried again, a busy file server."""
ENTRYPOINT = "flows.trial.trial"


@dataclass(frozen=True)
class JobRequest:
    """The jobs of an environment's runs."""

    options: SlurmOptions
    environment: Environment

    def arguments(self, step: Step = "measure") -> list[str]:
        """Arguments of sbatch, besides those that name one job."""
        return [*self._arguments(step), *self.options.sbatch]

    def _arguments(self, step: Step) -> Iterator[str]:
        options, environment = self.options, self.environment
        for name in ("partition", "account", "qos"):
            if value := getattr(options, name):
                yield f"--{name}={value}"
        # A requeued job would train again unseen: the engine submits the next one itself, and counts it.
        yield from ("--no-requeue", "--export=ALL", "--nodes=1", "--ntasks=1")
        yield f"--cpus-per-task={environment.cores}"
        yield f"--time={self.minutes(step)}"
        memory = options.memory_gb or (environment.limits.memory_gb and environment.limits.memory_gb + ENGINE_GB)
        if memory:
            yield f"--mem={math.ceil(memory * 1024)}M"
        if self.gpus:
            yield f"--gres=gpu:{self.gpus}"

    @property
    def gpus(self) -> int:
        needed = self.environment.gpus if self.environment.device == "cuda" else 0
        return needed if self.options.gpus is None else self.options.gpus

    def minutes(self, step: Step = "measure") -> int:
        """The time limit: all that a run may take, or what was stated."""
        if self.options.minutes:
            return self.options.minutes
        environment, judge = self.environment, self.environment.judge
        # Every judge states its longest evaluation, one with a model its start besides.
        judged = sum(getattr(judge, name, 0.0) for name in ("start_seconds", "total_seconds"))
        trained = environment.startup_seconds + environment.budget_seconds + environment.grace_seconds
        if step == "untrained":  # under two training seeds, and an edit's two judgements besides
            trained, judged = 2 * (environment.startup_seconds + environment.grace_seconds), 4 * judged
        return math.ceil((trained + judged + ENGINE_SECONDS) / 60)


def request_of(spec: CampaignSpec, environment: Environment | None = None) -> JobRequest | None:
    """The jobs of a campaign's runs; None where Slurm does not run them.

    Args:
        environment: What they run; None: the campaign's own environment.
    """
    return JobRequest(spec.slurm, environment or spec.loaded_environment()) if spec.launch == SLURM else None


def script(flow_run_id: object) -> str:
    """The job's script: what a worker of a process pool would start."""
    interpreter, flow = shlex.quote(sys.executable), shlex.quote(str(flow_run_id))
    return (
        "#!/bin/sh\n"
        "# Slurm sets this where it gives GPUs. Without it a program would take those of other jobs.\n"
        f'export {VISIBLE}="${{{VISIBLE}-}}"\n'
        f"export PREFECT__FLOW_ENTRYPOINT={ENTRYPOINT}\n"
        f"exec {interpreter} -m prefect.engine {flow}\n"
    )


def environment_of_a_job() -> dict[str, str]:
    """The variables that a job is given: this process's, without keys and without another job's.

    Slurm stores them with the job. The login of the Prefect server is among them, without which no run could report.
    """
    from prefect.settings import get_current_settings

    own = {
        name: value
        for name, value in variables().items()
        if not is_secret(name, value)
        and not URL_PASSWORD.search(value)
        and name != VISIBLE
        and (name == "SLURM_CONF" or not name.startswith(("SLURM_", "PREFECT__")))
    }
    return own | get_current_settings().to_environment_variables(exclude_unset=True)


def log_of(folder: Path, number: int) -> Path:
    """The file of a job's output."""
    return folder / f"{number}.log"


def pattern(path: Path) -> str:
    """A path as sbatch takes it for --output, where % and backslashes mean something."""
    return os.fspath(path).replace("\\", "\\\\").replace("%", "%%")
