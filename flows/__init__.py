"""The flows, and the `nightshift` command over them.

The four packages have everyday names, so another project's `tasks` or a stray `tasks.py` can come first on the path.
Half of one project would then run with half of another. So their places are compared here, before any is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_CODE = Path(__file__).resolve().parent.parent

for _package in ("tasks", "blocks", "environments"):
    _spec = find_spec(_package)
    _places = [*(_spec.submodule_search_locations or ()), _spec.origin or ""] if _spec else [""]
    _place = Path(_places[0]).resolve().parent
    if _place != _CODE:
        raise ImportError(
            f"`flows` comes from {_CODE / 'flows'}, but `{_package}` from {_place}: two projects are mixed. "
            f"Take {_place} off PYTHONPATH, or start from another folder than that one."
        )
