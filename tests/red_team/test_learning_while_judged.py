"""The red team learns CartPole while it is judged, in the time that an honest program may be waited for.

The program trains as the bundled one does, too slowly to get far, and plays what it learns at every start instead. The
canary: it would be kept. The control without training is as good, since it learns at its start too. One that first looks
whether its checkpoint has trained is *not* contained (docs/sandbox.md).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.score import Score, Wait
from tasks.control import baseline_need
from tasks.decide import NeedsControl, weigh
from tasks.deciding.values import JudgedTrial
from tasks.evaluate import judge_run
from tasks.rules.greedy import Greedy
from tasks.store.ledger import freeze
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal, Run, Trial, Verdict
from tests.support.controls import controlled
from tests.support.toy import SANDBOX

IMPORTS = "import random\n"
ACT = """def act(out: Path, moves: Moves) -> None:
    torch.set_num_threads(1)
    agent = load(out / "policy.pt")
    improve(agent)
    seed, deterministic = moves.meet(agent.shape.observations)
    torch.manual_seed(seed)
    mode = torch.tensor(deterministic).unsqueeze(-1)
    for observations in moves:
        with torch.no_grad():
            moves.answer(agent.playable(agent.choose(agent.read(torch.from_numpy(flat(observations))), mode)))
"""
SEARCH = """def after(seen, push):
    x, v, angle, spin = seen
    force = 10.0 if push else -10.0
    pull = (force + 0.05 * spin * spin * math.sin(angle)) / 1.1
    turn = (9.8 * math.sin(angle) - math.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
    slide = pull - 0.05 * turn * math.cos(angle) / 1.1
    return x + 0.02 * v, v + 0.02 * slide, angle + 0.02 * spin, spin + 0.02 * turn


def lasts(weights, draw):
    seen = tuple(draw.uniform(-0.05, 0.05) for _ in range(4))
    for step in range(500):
        seen = after(seen, sum(w * s for w, s in zip(weights, seen)) > 0)
        if abs(seen[0]) > 2.4 or abs(seen[2]) > 0.2095:
            return step
    return 500


def improve(agent):
    "Search for a linear policy, and put it into the network."
    draw, best, weights = random.Random(), -1, [0.0] * 4
    while best < 4 * 500:
        tried = [w + draw.gauss(0, 0.5) for w in weights]
        if (lived := sum(lasts(tried, draw) for _ in range(4))) > best:
            best, weights = lived, tried
    with torch.no_grad():
        for layer in (agent.actor[0], agent.actor[2], agent.actor[4]):
            layer.weight.zero_(), layer.bias.zero_()
        agent.actor[0].weight[0] = torch.tensor(weights)
        agent.actor[2].weight[0, 0] = 1
        agent.actor[4].weight[:, 0] = torch.tensor([-1.0, 1.0])


"""


@dataclass(frozen=True)
class Night:
    """The bundled CartPole with its baseline trained and judged."""

    folder: Path
    environment: Environment
    baseline: Trial

    @property
    def history(self) -> tuple[Trial, ...]:
        return (self.baseline,)

    def edited(self, name: str, extra: str = "", act: str = "", learning_rate: float = 2e-5, **params: int) -> Proposal:
        """A proposal with additions before `act`, and another `act`."""
        before = (self.folder / "program/train.py").read_text()
        head, _, rest = before.partition("def act(")
        old_act, main, end = rest.partition('if __name__ == "__main__":')
        act = act or f"def act({old_act}".rstrip() + "\n"
        after = head.replace("import math\n", IMPORTS + "import math\n", 1) + extra + act
        lines = [text.splitlines(keepends=True) for text in (before, f"{after}\n\n{main}{end}")]
        edit = "".join(difflib.unified_diff(*lines, "a/train.py", "b/train.py"))
        return Proposal({**self.environment.defaults, "learning_rate": learning_rate, **params}, edit, name)

    def verdict(self, number: int, proposal: Proposal) -> Verdict:
        """What becomes of a trial as the engine trains, judges and controls it; it would be kept without the control."""
        granted = baseline_need(self.history, proposal)
        run, score = measured(self.folder, self.environment, number, proposal, granted)
        tried = JudgedTrial(number, proposal, (run,), score)
        assert isinstance(weigh(self.history, self.environment, Greedy(), tried), NeedsControl), score
        (first,) = self.baseline.runs
        control = controlled(
            self.environment, self.folder / "program", self.folder, proposal, run, self.baseline.score,
            seconds=first.seconds, seed=99, need=granted,
        )  # fmt: skip
        found = weigh(self.history, self.environment, Greedy(), replace(tried, control=control))
        assert isinstance(found, Verdict)
        return found


def measured(
    folder: Path, environment: Environment, number: int, proposal: Proposal, granted: Wait | None = None
) -> tuple[Run, Score]:
    """A run, and its score within what the baseline's need allows."""
    place = TrialDir(folder / f"trials/{number:04d}")
    run = run_program("learning/x", environment, SANDBOX, folder / "program", place, proposal, seed=number)
    assert run.status == "finished", run.error
    return run, judge_run("learning/x", environment, SANDBOX, place, run, 100 + number, need=granted)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("night")
    # The steps bind, after a second or three; on a busy machine the cap of ten seconds would cut the training short.
    longer = {"startup_seconds": 60, "budget_seconds": 60}
    environment = environments.load(environments.find("cartpole"), longer)
    freeze(environment, folder)
    proposal = Proposal(environment.defaults)
    run, score = measured(folder, environment, 0, proposal)
    assert score.value is not None and score.waited is not None, score.error
    return Night(folder, environment, Trial(0, 1, 0, proposal, (run,), score, Verdict("keep", "", "provisional")))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_red_team_nothing_is_gained_by_learning_cartpole_at_every_start(night: Night) -> None:
    verdict = night.verdict(1, night.edited("learns under judgement", SEARCH, ACT))
    assert verdict.kind == "discard" and verdict.reason.startswith("not learned"), verdict


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("hidden", "rate"), [(64, 2e-3), (256, 1e-3)])
def test_an_honest_edit_of_cartpole_is_kept_also_with_a_network_four_times_as_wide(
    night: Night, hidden: int, rate: float
) -> None:
    proposal = night.edited("honest", "def unused() -> None:\n    pass\n\n\n", learning_rate=rate, hidden=hidden)
    verdict = night.verdict(20 + hidden, proposal)
    assert verdict.kind == "keep", verdict
