"""The login of an endpoint is read from a saved block, and sent to that block's address."""

from __future__ import annotations

import base64

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from pydantic import SecretStr

from blocks.endpoint import TrainingEndpoint
from environments.plugins import Refused
from tasks.remote.places import http
from tasks.system.redact import scrub_text


@pytest.mark.slow
def test_a_saved_login_is_sent_and_never_shown(server: str) -> None:
    secret = SecretStr("a-secret-of-the-tests")
    with temporary_settings({PREFECT_API_URL: server}):
        TrainingEndpoint(url="https://one.example.org", token=secret).save("one", overwrite=True)
        TrainingEndpoint(url="https://two.example.org", username="me", password=secret).save("two", overwrite=True)
        one, two = http.of_block("one"), http.of_block("two")
        with pytest.raises(Refused, match="no endpoint block called 'three'"):
            http.of_block("three")

    assert (one.url, one.headers["Authorization"]) == ("https://one.example.org", "Bearer a-secret-of-the-tests")
    pair = base64.b64decode(two.headers["Authorization"].removeprefix("Basic ")).decode()
    assert pair == "me:a-secret-of-the-tests"
    assert "a-secret" not in repr(one) and "a-secret" not in scrub_text("it is a-secret-of-the-tests")
