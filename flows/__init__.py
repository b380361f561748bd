"""The flows, and the `nightshift` command over them.

The four packages have everyday names, so another project's `tasks` or a stray `tasks.py` can come first on the path.
Half of one checkout would then run with half of another. So their places are compared here, before any is imported.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent
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
        raise ImportError(f"there is no `{package}` beside {_CHECKOUT / 'flows'}: this checkout is incomplete")
    place = Path([*(spec.submodule_search_locations or ()), spec.origin or ""][0]).resolve()
    if place.parent != _CHECKOUT:
        raise ImportError(
            f"`flows` comes from {_CHECKOUT / 'flows'}, but `{package}` from {place}: "
            "two projects are mixed. "
            f"Take {place.parent} off PYTHONPATH, or start from another folder than that one."
        )


for _package in ("tasks", "blocks", "environments"):
    _check_place(_package)
sys.meta_path.append(_Moved)
