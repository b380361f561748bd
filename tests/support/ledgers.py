"""Campaigns on disk, as a spec makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.spec.campaign_spec import CampaignSpec
from tasks.store.ledger import Ledger
from tests.support.toy import quadratic


def created(tmp_path: Path, name: str = "n", **parameters: Any) -> Ledger:
    """A new campaign in the quadratic environment."""
    folder = quadratic(tmp_path / "quad")
    return CampaignSpec.of(environment=str(folder), name=name, **parameters).open()
