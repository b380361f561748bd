"""The flows, and the `nightshift` command over them.

The four packages have everyday names, so another project's `tasks` or a stray `tasks.py` can come first on the path.
Half of one project would then run with half of another. So their places are compared here, before any is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_CODE = Path(__file__).resolve().parent.parent


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


for _package in ("tasks", "blocks", "environments"):
    _check_place(_package)
