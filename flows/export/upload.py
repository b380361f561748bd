"""A champion on the Hugging Face hub: one commit and one tag for each version, made by huggingface_hub.

An upload that was cut off at any point is finished by the same command: content that has arrived is not sent again, a
commit that is there has nothing left to change, and it gets the tag that it lacks.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from environments import Environment, judge_name
from environments.plugins import Refused
from flows.export.folder import certificate_of, champion, export
from flows.views.terminal import clean
from tasks.describe import bound, difference
from tasks.stats.certificate import Certificate
from tasks.store.ledger import Ledger
from tasks.system.redact import known_secrets, remember, scrub_text, secrets_in, windows
from tasks.trial import Trial

if TYPE_CHECKING:
    from huggingface_hub import HfApi

BRANCH, CARD = "main", "README.md"
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
TIMEOUT = 120.0
"""Seconds without a byte after which a request has failed: a large commit takes the hub a while."""


class HubFailed(OSError):
    """The hub or the way to it failed."""


@contextmanager
def packed(ledger: Ledger, uncertified: bool = False) -> Iterator[tuple[Path, str]]:
    """The champion's exported folder with a card that the hub reads, while the block runs; and the title of its commit.

    Raises:
        Refused: there is no champion to upload, it is not certified and need be, or a file holds a secret.
        OSError: the folder cannot be written.
    """
    trial, name = champion(ledger), ledger.campaign.name
    certificate = certificate_of(ledger, trial)
    if certificate is None and not uncertified:
        raise Refused(
            f"trial {trial.number} of campaign {name!r} is not certified: certify it (nightshift certify {name}), or "
            "upload it as it is with --uncertified"
        )
    proof = UNCERTIFIED
    if certificate and certificate.comparison:
        proof = f"certified, {difference(certificate, certificate.comparison.gain)} ({bound(certificate)})"
    with tempfile.TemporaryDirectory(prefix="nightshift-upload-") as scratch:
        folder = export(ledger, Path(scratch, "champion"))
        head = front_matter(ledger.environment, trial, certificate, f"{name}, trial {trial.number}")
        (folder / CARD).write_text(head + (folder / CARD).read_text())
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            _check_secrets(folder, path.relative_to(folder).as_posix())
        yield folder, f"{name}, trial {trial.number}: {proof}"


def _check_secrets(folder: Path, path: str) -> None:
    """Refuse a file whose name or content holds a known secret, or what looks like a key."""
    secrets, has_key = known_secrets(), False
    held = secrets_in(path.encode(), secrets)
    with (folder / path).open("rb") as stream:
        for window in windows(stream):
            held |= secrets_in(window, secrets)
            has_key = has_key or KEY.search(window) is not None
    if has_key or held:
        raise Refused(
            f"{scrub_text(path)} holds {', '.join(sorted(set(held.values()))) or 'what looks like a key'}: take it out "
            "of the environment, replace the key, and begin a new campaign"
        )


def front_matter(environment: Environment, trial: Trial, certificate: Certificate | None, name: str) -> str:
    """What the hub and its search read of a card, in YAML; the score is a certificate's, or else the search's."""
    hub, task = library(), TASKS.get(judge_name(environment.judge))
    value, how = trial.score.value, f"of the search, {UNCERTIFIED}"
    if certificate:
        value, how = certificate.mean("champion"), f"mean of {len(certificate.scores('champion'))} fresh runs"
    recipe = environment.prepare.settings if environment.prepare else {}
    base, data = (one if HUB_ID.fullmatch(str(one := recipe.get(key))) else None for key in ("model", "dataset"))
    problem = str(getattr(environment.judge, "id", "")) or data or environment.name
    result = hub.EvalResult(
        task_type=task or "other", task_name=(task or "other").replace("-", " "), dataset_type=problem,
        dataset_name=problem, metric_type=environment.metric, metric_name=f"{environment.metric} ({how})",
        metric_value=value,
    )  # fmt: skip
    card = hub.ModelCardData(
        library_name="nightshift", pipeline_tag=task, base_model=base, datasets=data, model_name=name,
        tags=["nightshift", "reinforcement-learning", environment.trainer, environment.name], eval_results=[result],
    )  # fmt: skip
    return f"---\n{scrub_text(card.to_yaml())}\n---\n\n"


def upload(ledger: Ledger, repo: str, *, public: bool, uncertified: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Upload the champion of a campaign to the repository of that name, which is made if there is none; what was done.

    Raises:
        Refused: there is nothing to upload, or the hub does not take it.
        HubFailed: the hub fails, also after some time.
        OSError: the folder cannot be written.
    """
    with packed(ledger, uncertified) as (folder, title), _explained():
        api = _connected(repo)
        api.create_repo(repo, visibility="public" if public else "private", exist_ok=True)
        info, url = api.model_info(repo), f"{api.endpoint}/{repo}"
        visibility = "private" if info.private else "public"
        say(f"uploading {title} to {url}, which is {visibility}")
        tags = {tag.name: tag.target_commit for tag in api.list_repo_refs(repo).tags}
        commit = api.upload_folder(
            repo_id=repo, folder_path=folder, commit_message=title, parent_commit=info.sha,
            commit_description=f"A champion of Nightshift: {CARD} says what it is, and how far it is proven.",
            delete_patterns=REPLACED,
        ).oid  # fmt: skip
        again = commit in tags.values()
        version = next((name for name in tags if tags[name] == commit), free_name(ledger.campaign.name, tags))
        if not again:
            api.create_tag(repo, tag=version, revision=commit, exist_ok=True)
    return {
        "repository": url, "visibility": visibility, "version": version, "commit": commit,
        "url": f"{url}/tree/{version}", "again": again,
    }  # fmt: skip


def _connected(repo: str) -> HfApi:
    """The hub, which knows the token of HF_TOKEN or of the stored login; it is never shown."""
    hub, address = library(), os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    if "/" not in repo:
        raise Refused(f"--hub {repo}: say whose it is too, as in your-name/{repo}")
    token = hub.get_token()
    if not token:
        raise Refused(
            f"no token for {address}: set HF_TOKEN to one with the right to write ({address}/settings/tokens), or "
            "log in with `hf auth login`"
        )
    remember("HF_TOKEN", token)
    hub.set_client_factory(lambda: httpx.Client(follow_redirects=True, timeout=TIMEOUT))
    api: HfApi = hub.HfApi(endpoint=address, token=token, library_name="nightshift")
    api.whoami()
    return api


@contextmanager
def _explained() -> Iterator[None]:
    """Say what the hub has answered, without the addresses of the client's own words, which may be signed."""
    try:
        yield
    except (httpx.HTTPError, RuntimeError) as error:
        failure = error.__cause__ if isinstance(error, RuntimeError) else error
        if not isinstance(failure, httpx.HTTPError):
            raise
        status = getattr(getattr(failure, "response", None), "status_code", None)
        answer = f"the hub answers {status} {getattr(failure, 'server_message', None) or ''}"
        words = clean(scrub_text(answer if status else f"no answer from the hub: {failure}"))[:300]
        if status in (401, 403):
            raise Refused(f"{words}: take a token (HF_TOKEN or `hf auth login`) that may write there") from error
        raise HubFailed(f"{words}: give the same command again; what has arrived is not sent again") from error


def library() -> Any:
    """huggingface_hub, without telemetry. It reads its settings from the environment when it is imported.

    Large files go by the LFS protocol: by the other, a folder becomes several commits.
    """
    os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        import huggingface_hub
    except ModuleNotFoundError as missing:
        raise Refused(f"uploading needs the package {missing.name!r}: pip install 'nightshift-rl[hub]'") from missing
    return huggingface_hub


def free_name(campaign: str, taken: Collection[str]) -> str:
    """The campaign's name as a tag; with a number where another version has it."""
    number, name = 1, campaign
    while name in taken or name == BRANCH:  # a tag called as the branch would hide it
        number += 1
        name = f"{campaign}-v{number}"
    return name
