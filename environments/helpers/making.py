"""For recipes with a dataset and a model from the Hugging Face hub: fetching, splitting, writing.

A place is a name on the hub at one revision, or the absolute path of a folder with the same files. Where
HF_HUB_OFFLINE is set, only the machine's own cache of the hub is looked at.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Row = dict[str, Any]
MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja")
"""No weights in other formats, which can run code when they are loaded, and no programs."""
SPLITS = ("search", "confirm", "report")


class CannotPrepare(Exception):
    """Why, with the remedy."""


def run(name: str, main: Callable[[Path], None]) -> None:
    """Run a recipe as `python prepare.py FOLDER`; what it cannot do ends it with the reason."""
    try:
        main(Path(sys.argv[1]))
    except CannotPrepare as reason:
        sys.exit(f"{name} cannot be prepared: {reason}")


def settings_of(folder: Path) -> SimpleNamespace:
    """FOLDER/settings.json: what [prepare.settings] states, and no other key (environments/__init__.py)."""
    return SimpleNamespace(**json.loads((folder / "settings.json").read_text(encoding="utf-8")))


def identity(question: str) -> str:
    """16 hexadecimal digits, the same for questions that differ in case and spaces alone."""
    plain = " ".join(unicodedata.normalize("NFKC", question).casefold().split())
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def distinct(rows: Iterable[Row], without: Iterable[Row] = ()) -> list[Row]:
    """One row for each identity, in the order of identities; none of those that `without` has."""
    others = {row["id"] for row in without}
    found = {row["id"]: row for row in reversed(list(rows)) if row["id"] not in others}
    return [found[key] for key in sorted(found)]


def first(rows: Iterable[Row], many: int) -> list[Row]:
    """The first rows of different identities, in their order. Raises CannotPrepare: there are fewer."""
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row["id"], row)
        if len(found) == many:
            return list(found.values())
    raise CannotPrepare(
        f"{len(found)} different questions were found, and {many} are wanted: set prepare.settings.train, .search, "
        ".confirm or .report lower, or ask harder ones"
    )


def split(rows: Sequence[Row], sizes: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Distinct rows, cut into the judge's three sets; a size of 0 takes the rest. Raises CannotPrepare: too few."""
    parts, at = {}, 0
    for name in SPLITS:
        parts[name] = list(rows[at : at + sizes[name]] if sizes[name] else rows[at:])
        at += len(parts[name])
        if not parts[name] or len(parts[name]) < sizes[name]:
            raise CannotPrepare(
                f"{len(rows)} questions are too few for {sizes['search']} to search, {sizes['confirm']} to confirm "
                f"and {sizes['report'] or 'the rest'} to report: set prepare.settings.search and .confirm lower"
            )
    return parts


def write(folder: Path, train: Sequence[Row], judge: Mapping[str, Sequence[Row]], curve: int = 0) -> None:
    """data/train.jsonl and judge/NAME.jsonl, a question to a line.

    `curve`: how many of `train`, a tenth of them at most, go to data/curve.jsonl; trials are asked them on the way.
    """
    kept = min(curve, len(train) // 10)
    places = {"data/train.jsonl": train[kept:], **{f"judge/{name}.jsonl": rows for name, rows in judge.items()}}
    places |= {"data/curve.jsonl": train[:kept]} if kept else {}
    for name, rows in places.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / name).write_text(lines, encoding="utf-8")


def dataset_rows(name: str, revision: str, files: Sequence[str], plain: str) -> list[dict[str, Any]]:
    """The rows of Parquet files of a dataset, or of the JSONL file `plain` that a folder may hold in their stead."""
    if name.startswith("/") and (own := Path(name, plain)).is_file():
        return [json.loads(line) for line in own.read_text(encoding="utf-8").split("\n") if line.strip()]
    folder = _found("dataset", name, revision, files, files)
    from pyarrow import parquet

    return [row for file in files for row in parquet.read_table(folder / file).to_pylist()]


def base_model(name: str, revision: str, folder: Path) -> None:
    """Put a model's files into `folder`. Raises CannotPrepare: it cannot be had, or is not whole."""
    needed = ("config.json", "tokenizer_config.json", "tokenizer.json", "*.safetensors")
    source = _found("model", name, revision, MODEL_FILES, needed)
    folder.mkdir(parents=True)
    for file in sorted({file for pattern in MODEL_FILES for file in source.glob(pattern)}):
        shutil.copyfile(file, folder / file.name)  # what a cache holds are links


def _found(kind: str, place: str, revision: str, files: Sequence[str], needed: Sequence[str]) -> Path:
    """The folder with its files: itself, or that of the machine's cache of the hub, into which what is missing is
    downloaded. Raises CannotPrepare: it cannot be had, or a file that is needed is not there.
    """
    what, folder = f"{kind} {place!r}", Path(place)
    remedy = f"set prepare.settings.{kind} to a folder with the same files"
    if not place.startswith("/"):
        named = f"{place}{'' if kind == 'model' else ' --repo-type dataset'} --revision {revision}"
        remedy = f"run `hf download {named}` where there is a network and bring that cache here, or {remedy}"
        try:
            hub, listed = importlib.import_module("huggingface_hub"), list(files)
            folder = Path(hub.snapshot_download(place, repo_type=kind, revision=revision, allow_patterns=listed))
        except Exception as failed:  # whatever the hub and the network raise
            said = f"{type(failed).__name__}: {(str(failed).strip().splitlines() or [''])[0][:300]}"
            raise CannotPrepare(f"{what} could not be fetched ({said}): {remedy}") from failed
    for name in needed:
        if not any(folder.glob(name)):
            raise CannotPrepare(f"{what} has no {name}: {remedy}")
    return folder
