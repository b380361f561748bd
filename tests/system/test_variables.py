"""Variables: what is in the environment, whatever another thread takes away meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tasks.editing.patches import git_environment
from tasks.system.redact import known_secrets
from tasks.system.variables import variables


class Leaving(dict[bytes, bytes]):
    """Of these one goes as soon as the names were read."""

    def __iter__(self) -> Iterator[bytes]:
        names = list(super().__iter__())
        self.pop(b"A_PASSWORD", None)
        return iter(names)


@pytest.mark.parametrize("read", [variables, git_environment, known_secrets])
def test_a_variable_that_goes_while_they_are_read_is_left_out(
    read: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {name.encode(): value.encode() for name, value in os.environ.items()}
    monkeypatch.setattr(os.environ, "_data", Leaving(there | {b"A_PASSWORD": b"of-a-login"}))
    assert "of-a-login" not in str(read())
    assert os.environ["PATH"]
