"""Every program of a test started warm: a plug-in of pytest (`-p tests.support.warm`).

Templates import next to nothing: the tests are about the sandbox of what is forked from them. A program that starts
cold all the same fails its test, unless it is none that can be forked.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks import imports_ahead
from tasks.sandbox.program import Program
from tasks.sandbox.warm import templates
from tasks.sandbox.warm.kind import ImportsAhead
from tasks.sandbox.warm.templates import Templates

AHEAD = ImportsAhead(("json",), {"NIGHTSHIFT_TEST": "1"})
"""With a variable, so that programs may set others."""


@pytest.fixture(autouse=True, scope="session")
def warm_starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Templates]:
    """Templates for every program; none may start cold."""
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Program.__init__.__kwdefaults__, "ahead", AHEAD)
        patch.setattr(imports_ahead, "for_training", lambda _: AHEAD)
        patch.setattr(imports_ahead, "for_judging", lambda _: AHEAD)
        with templates.opened(tmp_path_factory.mktemp("warm") / "templates", "test-warm", told.append) as warm:
            yield warm
            assert warm._made, "every program started cold"
    assert not told, told
