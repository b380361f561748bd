"""A champion as a commit on a branch of the user's repository, and the body of a pull request for it.

The commit follows the one that the campaign's environment came from, so that it merges. An environment from elsewhere
becomes a new folder, and so does a variant. Working tree and index are not touched.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import tomlkit

import environments
from environments.plugins import Refused
from flows.export.folder import champion, with_champion
from flows.report import page
from tasks.editing.patches import git_environment
from tasks.store import lineage
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.trial import Trial, baseline

BODY = "pull-request.md"


def make_branch(ledger: Ledger, here: Path, branch: str) -> tuple[str, Path]:
    """Make a branch with the champion; a sentence, and the file with the pull request's body.

    Raises:
        Refused: there is no champion, or git refuses in its own words: there is no repository around `here` or no
            commit in it, or it allows no branch of that name, or the branch is checked out or holds other commits.
    """
    trial, facts = champion(ledger)
    top, source = Path(os.fsdecode(_git(here, "rev-parse", "--show-toplevel"))), Path(ledger.campaign.source)
    bundled = environments.bundled().get(ledger.campaign.source)
    if bundled and bundled.name == ledger.campaign.environment:  # and no variant
        source = bundled
    is_inside = bool(ledger.campaign.commit) and source.is_absolute() and source.is_relative_to(top)
    base = ledger.campaign.commit if is_inside else os.fsdecode(_git(here, "rev-parse", "--verify", "HEAD"))
    folder = source.relative_to(top) if is_inside else Path(ledger.campaign.environment)
    frozen, files = ledger.path / "environment", _program(ledger, trial)
    kept = tomlkit.parse((frozen / environments.FILE).read_text())  # with its comments
    overrides = ledger.campaign.overrides
    table = environments.table_of(frozen, overrides, ledger.campaign.environment, lambda _: kept)
    files[environments.FILE] = with_champion(table, trial, sorted(files)).encode()
    paths = {(folder / path.relative_to(frozen)).as_posix(): path for path in environments.files(frozen)}
    if is_inside:  # what git ignores is not passed on; all else may not have been committed
        ours = _git(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", str(folder))
        paths = {name: path for name, path in paths.items() if name in os.fsdecode(ours).split("\0")}
    every = {name: path.read_bytes() for name, path in paths.items()}
    every |= {(folder / name).as_posix(): content for name, content in files.items()}
    draft = f"refs/nightshift/{ledger.campaign.campaign_id}-{trial.number}"
    message = "{verdict}\n\n{proof}\n".format(**facts.document["result"]).encode()
    commit = f"commit {draft}\ncommitter {lineage.WHO} {int(trial.runs[0].started)} +0000\n".encode()
    commit += lineage.data_entry(message) + b"from %b\n" % base.encode()
    for name, content in every.items():
        commit += lineage.file_entry(name, content, name in paths and os.access(paths[name], os.X_OK))
    _git(here, "fast-import", "--quiet", "--force", stdin=commit)
    try:
        _git(here, "fetch", "--quiet", "--no-tags", ".", f"{draft}:refs/heads/{branch}")
    finally:
        _git(here, "update-ref", "-d", draft)
    body = page.render("pull_request.md", facts=facts, trial=trial, first=baseline(facts.history))
    write_atomic(ledger.path / BODY, body)
    return f"branch {branch}: trial {trial.number} of {ledger.campaign.name}; git show {branch}", ledger.path / BODY


def _program(ledger: Ledger, trial: Trial) -> dict[str, bytes]:
    """The files of an edited program; none where it is the environment's own."""
    repository, ref = ledger.path / "lineage.git", f"refs/trials/{trial.number:04d}"
    if not trial.proposal.edit:
        return {}
    names = os.fsdecode(_git(repository, "ls-tree", "-rz", "--name-only", ref)).strip("\0").split("\0")
    return {name: _git(repository, "cat-file", "blob", f"{ref}:{name}") for name in names if name != lineage.PARAMS}


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, env=git_environment())
    if done.returncode:
        raise Refused(f"--git: {done.stderr.decode(errors='replace').strip() or 'git failed'}")
    return done.stdout.rstrip(b"\n") if arguments[0] == "rev-parse" else done.stdout
