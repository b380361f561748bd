"""The files that our own MLflow server gives and takes: below one folder, reached through no link.

MLflow opens every artifact through a repository that it picks by the scheme of a location. Here the local one is
replaced, and those of other schemes are gone, so that every request is confined, whatever its address. New locations
are checked where MLflow writes them to its database, since other programs write to them too.

Import it in a process that serves MLflow only.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import ClassVar

from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories
from mlflow.utils.file_utils import local_file_uri_to_path
from sqlalchemy import event, inspect
from sqlalchemy.orm import Session

from environments.safe_open import open_file, open_folder

LOCATIONS = (
    "artifact_location", "artifact_uri", "storage_location", "default_artifact_root", "trace_archival_location",
)  # fmt: skip
"""Columns of MLflow's tables that say where files are."""
INDIRECT = ("runs", "models")
"""Schemes that lead to the location of a run or a model, which is then looked up again."""
NO_FOLDER = re.compile(r"[\w-]+|(runs|models|mlflow-artifacts):/(?!/)[^%]*")
"""Locations that name no folder: a placeholder, or one that MLflow looks up."""
UPLOADING = ".artifact.uploading."
"""Prefix of incomplete files, which MLflow's own repository hides too."""


def serve_only(root: Path) -> None:
    """Confine MLflow in this process to the files below `root`."""
    OwnArtifacts.root = root.resolve()
    repositories = get_registered_artifact_repositories()
    for scheme in set(repositories) - {*INDIRECT}:
        del repositories[scheme]
    for scheme in ("", "file"):
        repositories[scheme] = OwnArtifacts  # type: ignore[assignment]  # it holds classes, whatever it is said to hold
    event.listen(Session, "before_flush", _check_locations)


def _check_locations(session: Session, *_: object) -> None:
    """Refuse rows with a new location that is not below the root."""
    for row in (*session.new, *session.dirty):
        state = inspect(row)
        for name in LOCATIONS:
            for location in state.attrs[name].history.added if name in state.attrs else ():
                if location and (".." in location or not NO_FOLDER.fullmatch(location)):
                    OwnArtifacts.check(location)


def refusal(location: str, why: str) -> MlflowException:
    return MlflowException(f"{location!r}: {why}", INVALID_PARAMETER_VALUE)


class OwnArtifacts(ArtifactRepository):
    """A folder below the root. Folders are opened one in the other, so that no link can be followed on the way."""

    root: ClassVar[Path]

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        super().__init__(artifact_uri, tracking_uri, registry_uri)
        self._parts = self._below_root(artifact_uri)

    @classmethod
    def _below_root(cls, location: str) -> tuple[str, ...]:
        """The parts of a location behind the root, by whichever name of the root it begins."""
        path = Path(local_file_uri_to_path(location))  # type: ignore[no-untyped-call]
        if path.is_absolute() and ".." not in path.parts and "\0" not in str(path):
            for above in (path, *path.parents):
                with suppress(OSError):
                    if above.samefile(cls.root):
                        return path.relative_to(above).parts
        raise refusal(location, f"this server keeps files below {cls.root} only")

    @classmethod
    def check(cls, location: str) -> None:
        """Refuse a location that is not below the root, or on whose way there is a link."""
        *above, name = cls._below_root(location) or (".",)
        with refusing(location), suppress(FileNotFoundError), opened(cls.root, above) as folder:
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.close(open_folder(name, folder))

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        name = Path(local_file).name
        with refusing(name), self._folder(_parts(artifact_path), make=True) as folder:
            if name.startswith(UPLOADING):
                raise refusal(name, "names of incomplete files are reserved")
            temporary = UPLOADING + secrets.token_hex(8)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
            try:
                with Path(local_file).open("rb") as source, os.fdopen(descriptor, "wb") as copy:
                    shutil.copyfileobj(source, copy)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(temporary, dir_fd=folder)
                raise

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        for above, _, names in os.walk(local_dir):
            below = PurePosixPath(artifact_path or "", Path(above).relative_to(local_dir))
            for name in names:
                self.log_artifact(str(Path(above, name)), str(below))

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        parts = _parts(path)
        found: list[tuple[str, os.stat_result]] = []  # stays empty for what is missing, a file or a link
        with (
            refusing(path or ""),
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder(parts) as folder,
            os.scandir(folder) as entries,
        ):
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        return [
            FileInfo("/".join((*parts, name)), is_dir, None if is_dir else status.st_size)
            for name, status in sorted(found)
            if (is_dir := stat.S_ISDIR(status.st_mode)) or stat.S_ISREG(status.st_mode)
            if not name.startswith(UPLOADING)
        ]

    def get_local_path(self, artifact_path: str) -> None:
        """No path is given away: what opens it would follow links. A missing or refused file is told at once."""
        *above, name = _parts(artifact_path) or ("",)
        with refusing(artifact_path), self._folder(above) as folder:
            open_file(name, folder).close()

    def _download_file(self, remote_file_path: str, local_path: str | Path) -> None:
        *above, name = _parts(remote_file_path) or ("",)
        with (
            refusing(remote_file_path),
            self._folder(above) as folder,
            open_file(name, folder) as source,
            Path(local_path).open("wb") as copy,
        ):
            shutil.copyfileobj(source, copy)

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        parts = (*self._parts, *_parts(artifact_path))
        if not parts:
            raise refusal(self.artifact_uri, "the folder of all artifacts is not deleted")
        with refusing(artifact_path or ""), suppress(FileNotFoundError), opened(self.root, parts[:-1]) as folder:
            if stat.S_ISDIR(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(parts[-1], dir_fd=folder)
            else:
                os.unlink(parts[-1], dir_fd=folder)

    def _folder(self, parts: Iterable[str], *, make: bool = False) -> AbstractContextManager[int]:
        return opened(self.root, (*self._parts, *parts), make=make)


@contextmanager
def opened(root: Path, parts: Iterable[str], *, make: bool = False) -> Iterator[int]:
    """The descriptor of a folder below the root, reached through no link; with `make`, missing ones are made."""
    with ExitStack() as stack:
        within = open_folder(root)
        stack.callback(os.close, within)
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=within)
            within = open_folder(part, within)
            stack.callback(os.close, within)
        yield within


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """Turn an error of the file system into MLflow's own."""
    try:
        yield
    except OSError as fault:
        if fault.errno == errno.ENOENT:
            raise MlflowException(f"No such artifact: {path!r}", RESOURCE_DOES_NOT_EXIST) from fault
        raise refusal(path, f"not served: {fault.strerror}") from fault


def _parts(path: str | None) -> tuple[str, ...]:
    """The parts of a path in a repository."""
    pure = PurePosixPath(path or "")
    if pure.is_absolute() or ".." in pure.parts or "\0" in str(pure):
        raise refusal(path or "", "a path of an artifact leads down only")
    return pure.parts
