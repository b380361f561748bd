"""The flows, and the `nightshift` command over them.

The four packages have everyday names, so another project's `tasks` or a stray `tasks.py` can stand before
ours on the path. Half of one checkout with half of another would run, and lie; so their places are compared
here, before any of them is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent


def _refuse_a_stranger(package: str) -> None:
    """Check that a package stands beside `flows`.

    Raises:
        ImportError: it is missing, or comes from elsewhere; names both paths and the remedy.
    """
    spec = find_spec(package)
    if spec is None:
        raise ImportError(
            f"there is no `{package}` beside {_CHECKOUT / 'flows'}: this checkout is incomplete"
        )
    found = Path([*(spec.submodule_search_locations or ()), spec.origin or ""][0]).resolve()
    if found.parent != _CHECKOUT:
        raise ImportError(
            f"`flows` comes from {_CHECKOUT / 'flows'}, but `{package}` from {found}: "
            "two projects are mixed. "
            f"Take {found.parent} off PYTHONPATH, or start from another folder than that one."
        )


for _package in ("tasks", "blocks", "environments"):
    _refuse_a_stranger(_package)
