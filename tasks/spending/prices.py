"""Prices and the monthly cap, as a person states them in `budget.toml` in the home.

    usd_per_month = 200        # all campaigns of this home together, by calendar month

    [usd_per_hour]             # of one slot, by where trials run: here, or a deployment of the flow trial
    here = 0.12
    gpu-pair = 5.2

A file, because every campaign, `nightshift status` and `nightshift list` must see the same cap without a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from environments import plugins, toml_file

FILE = "budget.toml"
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Prices(BaseModel):
    """The content of budget.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd_per_month: Usd | None = None
    usd_per_hour: dict[str, Usd] = {}

    def of(self, launch: str) -> float:
        """The price of an hour of one slot; 0 if none is stated."""
        short = launch.removeprefix("trial/")
        return self.usd_per_hour.get(short, self.usd_per_hour.get(f"trial/{short}", 0.0))


def prices(home: Path) -> Prices:
    """What budget.toml states; nothing without the file. Refused if it is damaged."""
    path = home / FILE
    if not path.exists():
        return Prices()
    try:
        return Prices(**toml_file.read(path))
    except ValidationError as wrong:
        raise plugins.explain(wrong, str(path), Prices) from wrong
