"""The flows, and the `nightshift` command over them.

The four packages have everyday names, so another project's `tasks` or a stray `tasks.py` can come first on the path.
Half of one project would then run with half of another. Where they are installed, another distribution can also put
files over them. So their places, and their files where a RECORD has them, are compared here, before any is imported.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_CODE = Path(__file__).resolve().parent.parent
_OTHERS = ("tasks", "blocks", "environments")
_MOVED = {"flows.proving": "flows.certify"}
"""Modules that deployments of earlier versions name, and where their flow is now."""


class _Moved:
    """The last finder of sys.meta_path: it finds nothing, and explains why a flow is not where a deployment says."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in _MOVED:
            raise ImportError(
                f"{name} is now {_MOVED[name]}: this deployment was made by an earlier version of Nightshift, "
                "deploy it again with `prefect --no-prompt deploy --all`"
            )


def _check_place(package: str) -> None:
    """Raise ImportError, with both paths and the remedy, unless a package stands beside `flows`."""
    spec = find_spec(package)
    if spec is None:
        raise ImportError(
            f"there is no `{package}` beside {_CODE / 'flows'}: it is incomplete, install Nightshift again"
        )
    place = Path([*(spec.submodule_search_locations or ()), spec.origin or ""][0]).resolve()
    if place.parent != _CODE:
        raise ImportError(
            f"`flows` comes from {_CODE / 'flows'}, but `{package}` from {place}: "
            "two projects are mixed. "
            f"Take {place.parent} off PYTHONPATH, or start from another folder than that one."
        )


def _text(record: Path) -> str:
    return record.read_text(encoding="utf-8", errors="replace")


def _check_files() -> None:
    """Raise ImportError where a package is not what was installed: of two files of one name, pip keeps the last.

    Sizes are compared, which takes no time. A file that nobody else has installed was edited, and may stay.
    """
    for record in _CODE.glob("nightshift_rl-*.dist-info/RECORD"):
        sizes = {line.split(",")[0]: line.rpartition(",")[2] for line in _text(record).splitlines()}
        for package in ("flows", *_OTHERS):
            file = f"{package}/__init__.py"
            there = (_CODE / file).is_file()
            if there and str((_CODE / file).stat().st_size) == sizes.get(file):
                continue
            records = _CODE.glob("*.dist-info/RECORD")
            others = (other for other in records if not other.parent.name.startswith("nightshift_rl-"))
            owners = [other.parent.stem for other in others if f"\n{file}," in f"\n{_text(other)}"]
            if owners or not there:
                fact = f"it belongs to {', '.join(owners)} too" if owners else "it is missing"
                raise ImportError(
                    f"{_CODE / file} is not what Nightshift has installed: {fact}. Two distributions cannot share a "
                    "package: install Nightshift again, into an environment of its own"
                )


for _package in _OTHERS:
    _check_place(_package)
_check_files()
sys.meta_path.append(_Moved)
