"""A flow run that is refused ends as Failed, with the sentence; on the command line it is still a refusal."""

from __future__ import annotations

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from environments.plugins import Refused
from flows.campaign import campaign
from flows.certify import certify


def test_a_refused_run_ends_as_failed_with_the_sentence(server: str) -> None:
    refused = {
        "Did you mean 'cartpole'": (campaign, {"environment": "cartpol"}),
        "until: must be a time of day": (campaign, {"environment": "cartpole", "until": "25:00"}),
        "unknown campaign 'none-1'": (certify, {"name": "none-1"}),
    }
    with temporary_settings({PREFECT_API_URL: server}):
        for sentence, (flow, parameters) in refused.items():
            state = flow(**parameters, return_state=True)  # type: ignore[call-overload]
            assert (state.is_failed(), state.name) == (True, "Failed")
            with pytest.raises(Refused, match=sentence) as again:
                state.result()
            assert state.message == str(again.value)
