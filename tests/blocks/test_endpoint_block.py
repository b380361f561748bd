"""The saved block of an endpoint that trains: what it refuses, and that its schema stays."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from blocks.endpoint import TrainingEndpoint

SECRET = "a-secret-of-the-tests"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"url": "ftp://host"}, "must begin with http"),
        ({"url": f"https://me:{SECRET}@host"}, "give them as username and password"),
        ({"url": "https://host", "username": "me"}, "go together"),
        ({"url": "https://host", "username": "me", "password": SECRET, "token": SECRET}, "not both"),
        ({"url": "http://host", "token": SECRET}, "use https"),
    ],
)
def test_a_login_that_is_incomplete_or_would_be_read_on_the_way_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as refused:
        TrainingEndpoint(**values)
    assert SECRET not in str(refused.value)
