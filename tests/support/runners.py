"""A campaign's state as the engine holds it, and the server at which its tasks run."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator

from flows.engine.runner import Runner
from flows.spec.campaign_spec import CampaignSpec
from tasks.machine.slots import Slots
from tasks.store.ledger import Ledger
from tasks.trial import History


def bench(ledger: Ledger, history: History | None = None) -> Runner:
    """Of a campaign as it stands on disk, or with trials that only memory has."""
    spec = CampaignSpec.of(**tomllib.loads((ledger.path / "spec.toml").read_text()))
    return Runner(spec, ledger, ledger.history() if history is None else history, Slots(ledger.path))


@contextlib.contextmanager
def prefect_at(url: str) -> Iterator[None]:
    """Where the tasks of a bench without a flow are run."""
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    with temporary_settings({PREFECT_API_URL: url, PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield
