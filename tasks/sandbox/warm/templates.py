"""The templates of a campaign, one for each kind of its programs.

    with templates.opened(folder, marker, tell) as warm:    # in a campaign
        warm.prepare(kind)                                  # its packages are imported
        ...                                                 # a Program is forked from it

Who finds none has one made first, on its own cores: it imports there what its program would import. Where no templates
are open, every program starts cold.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tasks.sandbox.supervised import Supervised
from tasks.sandbox.warm.kind import Kind
from tasks.sandbox.warm.template import Template, TemplateFailed
from tasks.system import file_trees

MEMORY_RESERVE = 2 * 2**30
"""Bytes of the machine's memory that are free before a template is made."""
FAULTS = 3
"""Templates of a kind that may fail, one after the other; then its programs start cold."""


class Templates:
    """Templates by kind; one of a kind at a time."""

    def __init__(self, folder: Path, marker: str, tell: Callable[[str], None]) -> None:
        """`folder`: for their homes; `marker`: of their processes; `tell` is told why a program starts cold."""
        self._folder, self._marker, self._tell = folder, f"{marker}/template", tell
        self._cores = tuple(os.sched_getaffinity(0))
        self._lock = threading.Lock()
        self._made: list[Template] = []
        self._faults: list[tuple[Kind, str]] = []
        file_trees.remove(folder)  # left by an engine that was killed

    def prepare(self, kind: Kind) -> None:
        """Have its packages imported, without waiting for it."""
        with suppress(TemplateFailed):  # its first program tries again, and says why
            self._template(kind, ())

    def start(
        self, kind: Kind, plan: Mapping[str, Any], line: Sequence[str], *, marker: str, cwd: Path,
        passed: tuple[int, ...], cores: tuple[int, ...],
    ) -> Supervised | None:  # fmt: skip
        """Start a program as `supervised.start` does; None, and why is told, if it has to start cold."""
        why = ""
        for _ in range(2):  # a second time where the template has ended, or its packages have changed
            try:
                template = self._template(kind, cores)
                self._wait(template)
                return template.start(plan, line, marker=marker, cwd=cwd, passed=passed)
            except TemplateFailed as failed:
                why = str(failed)
                if not failed.is_over:
                    break
                self._discard(template)
        self._tell(why)
        return None

    def close(self) -> None:
        """End all templates. Programs that were forked from them go on."""
        for template in self._made:
            template.end()
        file_trees.remove(self._folder)

    def _template(self, kind: Kind, cores: tuple[int, ...]) -> Template:
        """The template of that kind, which may still import; made if there is none."""
        with self._lock:
            if found := next((each for each in self._made if each.kind == kind), None):
                return found
            if len(faults := [why for failed, why in self._faults if failed == kind]) >= FAULTS:
                raise TemplateFailed(f"{faults[-1]} ({FAULTS} times)", is_over=False)
            if psutil.virtual_memory().available < MEMORY_RESERVE:
                raise TemplateFailed("packages are not imported ahead: too little memory is free", is_over=False)
            home = self._folder / secrets.token_hex(4)
            try:
                made = Template(kind, home, self._marker, cores or self._cores, self._cores)
            except OSError as fault:
                raise TemplateFailed(f"packages are not imported ahead: {fault}", is_over=False) from fault
            self._made.append(made)
            return made

    def _wait(self, template: Template) -> None:
        """Wait until it can be forked and no other one imports beside the program."""
        for other in list(self._made):
            with suppress(TemplateFailed):
                other.wait()
        try:
            template.wait()
        except TemplateFailed as failed:
            if self._discard(template):  # else another thread has waited for it too, and has counted the fault
                self._faults.append((template.kind, str(failed)))
            raise TemplateFailed(str(failed), is_over=False) from failed
        self._faults = [fault for fault in self._faults if fault[0] != template.kind]

    def _discard(self, template: Template) -> bool:
        """End a template; whether it was not discarded before."""
        with self._lock:
            if is_first := template in self._made:
                self._made.remove(template)
        template.end()
        return is_first


_open: Templates | None = None


def current() -> Templates | None:
    """Those of this process, if any are open."""
    return _open


@contextmanager
def opened(folder: Path, marker: str, tell: Callable[[str], None]) -> Iterator[Templates]:
    """Have templates while the block runs. Inside of another block, that one's are used."""
    global _open
    if _open is not None:
        yield _open
        return
    _open = Templates(folder, marker, tell)
    try:
        yield _open
    finally:
        ending, _open = _open, None
        ending.close()
