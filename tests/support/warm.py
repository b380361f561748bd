"""Every program of a test started warm: a plug-in of pytest (`-p tests.support.warm`).

Standbys are prepared on demand, one for each start, and import next to nothing: the tests are about their sandbox. A
program that starts cold all the same fails its test, unless it is none that a standby can become.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks import imports_ahead
from tasks.sandbox.program import Program
from tasks.sandbox.warm import pool
from tasks.sandbox.warm.kind import ImportsAhead, Kind
from tasks.sandbox.warm.standby import Standby
from tests.support.processes import wait_for

AHEAD = ImportsAhead(("json",))


class Eager(pool.Pool):
    """A pool that prepares a standby when it is asked for."""

    taken = 0

    def take(self, kind: Kind) -> Standby | None:
        with self._change:
            self._due = [] if self._first(kind) else [kind]
            self._change.notify_all()
        wait_for(lambda: self._first(kind), 60)
        self.taken += 1
        with self._change:  # or the next one is prepared at once, in this test's world
            standby = super().take(kind)
            self._due = []
        return standby


@pytest.fixture(autouse=True, scope="session")
def standbys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eager]:
    """Standbys for every program; none may start cold."""
    told: list[str] = []
    eager = Eager(tmp_path_factory.mktemp("warm") / "standby", "test-warm", told.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_open", eager)
        patch.setitem(Program.__init__.__kwdefaults__, "ahead", AHEAD)
        patch.setattr(imports_ahead, "for_training", lambda _: AHEAD)
        patch.setattr(imports_ahead, "for_acting", lambda _: AHEAD)
        yield eager
    eager.close()
    assert not told, told
    assert eager.taken, "every program started cold"
