"""Run a recipe in the sandbox, without a GPU, a key, or files that its hash does not cover.

With `network = true` it may use the network, unless HF_HUB_OFFLINE is set, and read and fill the user's Hugging Face
cache, without the token beside it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from environments.limits import Limits
from environments.plugins import Refused
from environments.recipe import Recipe
from tasks.sandbox import confinement, outputs
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.isolation import check_given, working
from tasks.sandbox.program import SAID, CannotStart, NotAProgram, Program, Stopped
from tasks.system.clock import clock

SAY_SECONDS = 15.0
"""Between two progress messages."""
CACHES = {
    "HF_HUB_CACHE": "hub", "HF_DATASETS_CACHE": "datasets", "HF_XET_CACHE": "xet", "HF_ASSETS_CACHE": "assets",
}  # fmt: skip
"""Parts of the Hugging Face cache, by the variables that name their folders."""
OFFLINE = "HF_HUB_OFFLINE"

Say = Callable[[str], None]


def run(recipe: Recipe, limits: Limits, texts: Path, made: Path, runs: Path, log: Path, marker: str, say: Say) -> float:
    """Run a recipe to its end; the seconds that it took.

    It reads copies of its files in `texts` and writes `made`; it must not see `runs`, the directory of all campaigns.
    The recipe's disk_gb replaces the environment's limits of size. Raises Refused: it failed, took too long, wrote too
    much, or its settings name a path that no program may read; OSError: the machine could not start it.
    """
    # With the network, it runs as the user, who owns the cache.
    level = next(level for level in working() if not (recipe.network and confinement.owner(level) is not None))
    given = tuple(paths_in(recipe.settings))
    check_given(level, runs, given)
    caches = shared(os.environ) if recipe.network else {}
    for cache in caches.values():
        cache.mkdir(parents=True, exist_ok=True)
    network = recipe.network and os.environ.get(OFFLINE, "").upper() not in ("1", "ON", "YES", "TRUE")
    confinement.give(made, level)
    variables = [f"{OFFLINE}={0 if network else 1}", *(f"{name}={path}" for name, path in caches.items())]
    command = ["env", *variables, sys.executable, recipe.program, str(made)]
    view = VisiblePaths((texts, *given), (made,), network, shared=tuple(caches.values()))
    roomy = {"file_gb": max(recipe.disk_gb, limits.file_gb), "out_gb": recipe.disk_gb, "out_files": 2**31}
    limits = limits.model_copy(update=roomy)
    try:
        with Program(command, cwd=texts, log=log, marker=marker, level=level, view=view, limits=limits) as program:
            reason = _fault(program, recipe, made, say)
            program.kill()
    except (CannotStart, NotAProgram) as fault:
        raise OSError(f"{recipe.program} cannot be started: {fault}") from fault
    if reason:
        raise Refused(f"{recipe.program}: {reason}\n{program.tail()}".rstrip())
    return clock() - program.started


def _fault(program: Program, recipe: Recipe, made: Path, say: Say) -> str | None:
    """Wait for its end; why it failed, or None."""
    reason = None
    try:
        while (status := program.wait(min(SAY_SECONDS, recipe.seconds))) is None:
            if (passed := clock() - program.started) > recipe.seconds:
                return f"was not done within {recipe.seconds:g} s: raise [prepare] seconds"
            say(f"{recipe.program}, {passed:.0f} s: {program.tail().rpartition(SAID)[2]}")
        if status:
            return program.describe(status)
        program.left_over()  # whatever it leaves is ended, at every level
    except Stopped as stopped:
        reason = str(stopped)
    if outputs.excess(made, program.limits):
        return f"wrote more than {recipe.disk_gb:g} GiB: raise [prepare] disk_gb"
    return reason


def paths_in(settings: object) -> Iterator[Path]:
    """Existing absolute paths in the settings, such as a model's."""
    if isinstance(settings, Mapping | list | tuple):
        for value in settings.values() if isinstance(settings, Mapping) else settings:
            yield from paths_in(value)
    elif isinstance(settings, str) and settings.startswith("/") and os.path.exists(settings):  # noqa: PTH110 (any text)
        yield Path(settings)


def shared(variables: Mapping[str, str]) -> dict[str, Path]:
    """The folders of the user's Hugging Face cache, by the variable of each."""
    above = variables.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(variables.get("HF_HOME") or Path(above) / "huggingface")
    folders = {name: Path(variables.get(name) or cache / part) for name, part in CACHES.items()}
    return {name: path.expanduser().absolute() for name, path in folders.items()}
