"""A champion on the Hugging Face hub, by huggingface_hub: a version is a commit, whose title says how far it is proven.

An upload that was cut off is finished by the same command: content that has arrived is not sent again.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from environments import Environment
from environments.plugins import Refused, name_of
from flows.export.folder import champion, export
from tasks.describe import bound, difference
from tasks.stats.certificate import Certificate, shipped
from tasks.store.ledger import Ledger
from tasks.system.redact import one_line, remember, scrub_text
from tasks.trial import Trial

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD = "README.md"
REPLACED = ["environment/*", "checkpoint/*"]
"""What a version has whole: files of an earlier one are deleted there, and nowhere else."""
UNCERTIFIED = "not certified"
TASKS = {"control": "reinforcement-learning", "text": "text-generation"}
"""The hub's task of a judge; what other judges measure may be anything."""
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
KEY = re.compile(
    rb"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{30,}|sk-(?:proj-|ant-)?[A-Za-z0-9_-]{32,}|gh[pousr]_[A-Za-z0-9]{36,}"
    rb"|github_pat_\w{40,}|AKIA[0-9A-Z]{16}|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----)"
)
"""Keys that this process need not know, such as one in a file of the environment."""
TEXT_BYTES = 2**20
"""Larger files are weights, and hold no such key. No file holds a known secret: it would not have been exported."""


def front_matter(environment: Environment, trial: Trial, certificate: Certificate | None, name: str) -> str:
    """What the hub and its search read of a card, in YAML; the score is a certificate's, or else the search's."""
    hub, value, how = library(), trial.score.value, f"of the search, {UNCERTIFIED}"
    if certificate:
        value, how = certificate.mean("champion"), f"mean of {len(certificate.scores('champion'))} fresh runs"
    task, recipe = TASKS.get(name_of(environment.judge)), environment.prepare.settings if environment.prepare else {}
    base, data = (one if HUB_ID.fullmatch(str(one := recipe.get(key))) else None for key in ("model", "dataset"))
    result = hub.EvalResult(
        task_type=task or "other", dataset_type=environment.name, dataset_name=environment.name,
        metric_type=environment.metric, metric_name=f"{environment.metric} ({how})", metric_value=value,
    )  # fmt: skip
    tags = ["nightshift", "reinforcement-learning", environment.trainer, environment.name]
    card = hub.ModelCardData(
        library_name="nightshift", pipeline_tag=task, base_model=base, datasets=data, model_name=name, tags=tags,
        eval_results=[result],
    )  # fmt: skip
    return f"---\n{scrub_text(card.to_yaml())}\n---\n\n"


def upload(ledger: Ledger, repo: str, *, public: bool, uncertified: bool) -> dict[str, Any]:
    """Upload the champion of a campaign to the repository of that name, which is made if there is none; what was done.

    Raises:
        Refused: there is no token or no champion, it is not certified and need be, or a file holds a secret.
        ConnectionError: the hub refuses or fails, also after some time.
        OSError: the folder cannot be written.
    """
    (trial, facts), name, token = champion(ledger), ledger.campaign.name, library().get_token()
    certificate, proof = shipped(facts.own), UNCERTIFIED
    if certificate is None and not uncertified:
        raise Refused(
            f"trial {trial.number} of campaign {name!r} is not certified: certify it (nightshift certify {name}), or "
            "upload it as it is with --uncertified"
        )
    if not token:
        raise Refused("no token for the hub: set HF_TOKEN to one with the right to write, or log in: hf auth login")
    remember("HF_TOKEN", token)
    if certificate and certificate.comparison:
        proof = f"certified, {difference(certificate, certificate.comparison.gain)} ({bound(certificate)})"
    with tempfile.TemporaryDirectory(prefix="nightshift-upload-") as scratch:
        folder = export(ledger, Path(scratch, "champion"))
        head = front_matter(ledger.environment, trial, certificate, f"{name}, trial {trial.number}")
        (folder / CARD).write_text(head + (folder / CARD).read_text())
        for path in (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < TEXT_BYTES):
            if KEY.search(path.read_bytes()):
                fact = f"{path.relative_to(folder)} holds what looks like a key"
                raise Refused(f"{fact}: take it out of the environment, replace the key, and begin a new campaign")
        api = library().HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token, library_name="nightshift")
        try:
            return _commit(api, repo, folder, f"{name}, trial {trial.number}: {proof}", public)
        except ValueError as wrong:
            raise Refused(f"--hub {repo}: {wrong}") from wrong
        except (httpx.HTTPError, RuntimeError) as error:
            words = one_line(re.sub(r"\?\S+", "", str(error)), 300)  # without what signs an address
            raise ConnectionError(
                f"the hub failed ({words}): give the same command again, with a token that may write there; what has "
                "arrived is not sent again"
            ) from error


def _commit(api: HfApi, repo: str, folder: Path, title: str, public: bool) -> dict[str, Any]:
    """Make the folder's content the newest commit of the repository; what was done."""
    repo = api.create_repo(repo, visibility="public" if public else "private", exist_ok=True).repo_id
    before, url = api.model_info(repo), f"{api.endpoint}/{repo}"
    visibility = "private" if before.private else "public"
    print(f"uploading {title} to {url}, which is {visibility}", file=sys.stderr, flush=True)
    commit = api.upload_folder(
        repo_id=repo, folder_path=folder, commit_message=title, delete_patterns=REPLACED,
        commit_description=f"A champion of Nightshift: {CARD} says what it is, and how far it is proven.",
    ).oid  # fmt: skip
    return {"visibility": visibility, "commit": commit, "url": f"{url}/tree/{commit}", "again": commit == before.sha}


def library() -> Any:
    """huggingface_hub, without telemetry. It reads its settings from the environment when it is imported.

    Large files go by the LFS protocol: by the other, a folder becomes several commits.
    """
    os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    try:
        import huggingface_hub
    except ModuleNotFoundError as missing:
        raise Refused(f"uploading needs the package {missing.name!r}: pip install 'nightshift-rl[hub]'") from missing
    return huggingface_hub
