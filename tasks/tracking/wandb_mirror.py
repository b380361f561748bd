"""Trials as runs of a Weights & Biases project, where WANDB_PROJECT names one and the package `wandb` is there.

The id of a run follows from the trial, so a trial that is sent again is the same run: W&B passes over the steps that it
has, and offline the run's folder is made anew. It happens in a process of its own, which may hang, ask or die.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.stats.certificate import Certificate
from tasks.store.ledger import Ledger
from tasks.store.workspace import TRIAL
from tasks.system.files import write_atomic
from tasks.system.redact import scrub_text, without_passwords
from tasks.task_key import digest_of
from tasks.tracking.campaign_run import figures, words
from tasks.tracking.trial_run import trial_key, trial_name, trial_note, trial_points
from tasks.tracking.values import plain
from tasks.trial import Trial

TARGET = ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_BASE_URL", "WANDB_MODE")
"""Variables that say where to; elsewhere nothing was sent yet."""
MOST_SECONDS = 60.0  # for a run; half of that to begin it


def mirror(ledger: Ledger) -> str:
    """Bring W&B up to date; why it is not, empty if it is, or is not wanted. Only one process at a time may call it."""
    if not os.environ.get("WANDB_PROJECT"):
        return ""
    if find_spec("wandb") is None:
        return "WANDB_PROJECT is set, and W&B is not installed: pip install 'nightshift-rl[wandb]'"
    if not (number := len(_missing(ledger))):
        return ""
    log, command = ledger.path / "wandb.log", [sys.executable, "-P", "-m", __name__, str(ledger.path)]
    with log.open("wb") as output, suppress(subprocess.SubprocessError):
        most = number * MOST_SECONDS
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=most, check=True)
        return ""
    reason = plain(log.read_text(errors="replace")).strip().rpartition("\n")[2]
    return without_passwords(f"W&B does not take records: {reason}")


def _missing(ledger: Ledger) -> dict[Path, tuple[str, Trial, Certificate | None]]:
    """What W&B lacks: a digest, the trial, and its certificate if it is a champion; by the file that gets the digest
    when W&B has it, whose name is the id of the run.
    """
    own, missing = ledger.own_certificates(), {}
    target = [os.environ.get(name, "") for name in TARGET]
    for trial in ledger.attempts_decided():
        proof = next((one for one in reversed(own) if one.champion == trial.number), None)
        digest = digest_of(*target, TRIAL.dump_json(trial).decode(), str(proof))
        done = ledger.path / "wandb" / f"{trial_key(ledger, trial).replace('/', '-')}.digest"
        if not (done.is_file() and done.read_text() == digest):
            missing[done] = digest, trial, proof
    return missing


def _send(ledger: Ledger, run_id: str, trial: Trial, proof: Certificate | None) -> None:
    import wandb

    for earlier in (ledger.path / "wandb").glob(f"offline-run-*-{run_id}"):
        shutil.rmtree(earlier)
    settings = wandb.Settings(
        silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True,
        init_timeout=MOST_SECONDS / 2, finish_timeout=MOST_SECONDS / 2, finish_timeout_raises=True,
    )  # fmt: skip
    params = {key: scrub_text(one) if isinstance(one, str) else one for key, one in trial.proposal.params.items()}
    config = {**params, "trial": trial.number, "attempt": trial.attempt, "proposer": trial.proposal.proposer}
    points = trial_points(ledger, trial)
    summary: dict[str, Any] = {one.key: one.value for one in points if not one.key.startswith(("train/", "system/"))}
    summary["verdict"] = trial.verdict.kind
    if proof:
        summary |= {"certified": proof.passed, "certificate": words(proof)}
        summary |= {f"certificate/{name}": value for name, value in figures(proof).items()}
    with wandb.init(
        id=run_id, resume="allow", dir=ledger.path, group=ledger.campaign.name, job_type="trial",
        name=trial_name(ledger, trial), notes=trial_note(trial), config=config, settings=settings,
    ) as run:  # fmt: skip
        for point in sorted((one for one in points if one.key.startswith("train/")), key=lambda one: one.step):
            run.log({point.key: point.value}, step=point.step)
        run.summary.update(summary)


def main(folder: str) -> None:
    """Send what is missing of the campaign in a folder, up to what W&B does not take."""
    ledger = Ledger.at(Path(folder))
    for done, (digest, trial, proof) in _missing(ledger).items():
        _send(ledger, done.stem, trial, proof)
        write_atomic(done, digest)


if __name__ == "__main__":
    main(sys.argv[1])
