"""What a campaign needs after its baseline is there when its server is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flows.cli.running import libraries

LOOK = """
import sys
from flows.cli.running import libraries
late = {*libraries.FOR_SEARCH, *libraries.FOR_TRACKING}
assert not late & sys.modules.keys()
with libraries.loaded_meanwhile(tracking=False):
    pass
print(*sorted(late & sys.modules.keys()))
"""


@pytest.mark.slow
def test_the_libraries_of_a_search_are_loaded_when_the_block_ends() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(libraries.FOR_SEARCH)


def test_a_library_that_is_missing_is_said_at_the_end_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "FOR_SEARCH", ("no_such_library",))
    with pytest.raises(ImportError, match="no_such_library"), libraries.loaded_meanwhile(tracking=False):
        pass
