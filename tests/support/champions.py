"""Campaigns in CartPole whose champions answer observations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flows.spec.campaign_spec import CampaignSpec
from tasks.store.ledger import Ledger
from tests.support.act_programs import PRELUDE
from tests.support.ledgers import keep, trusted
from tests.support.toy import folder_of

CART = """\
metric = "return/mean"
direction = "maximize"
trainer = "command"
program = ["train.py"]
budget_seconds = 5
device = "cpu"
judge = "control"

[control]
id = "CartPole-v1"
episodes = 4

[space.x]
type = "float"
low = 0.0
high = 1.0
default = 0.5
"""

TILT = """
config = json.load(open("config.json"))
with open(os.path.join(config["out"], "policy.json")) as file:
    sign = json.load(file)["sign"]
ready()
for active, start, (column,) in frames():
    answer((sign * column[:, 2] > 0).astype(np.int64))
"""
"""Pushes the cart towards the side to which the pole tilts, or away from it."""


def cart(folder: Path, act: str = TILT, champion: Mapping[str, bytes] | None = None, name: str = "night") -> Ledger:
    """A new campaign whose baseline pushes away from the pole's tilt, and whose champion towards it, or has these files."""
    home = folder_of(folder / "cart", {"environment.toml": CART, "train.py": PRELUDE + act})
    ledger = CampaignSpec.of(environment=str(trusted(home)), name=name).open()
    keep(ledger, 9.0, {"x": 0.09}, {"policy.json": b'{"sign": -1}'})
    keep(ledger, 40.0, {"x": 0.4}, champion or {"policy.json": b'{"sign": 1}'})
    return ledger
