"""Twenty-four edits of the bundled PPO program as researchers try them, each with what its author would say of it.

What an edit is truly worth is measured (benchmarks.known_edits); `kind` says only why it is on the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.ppo_edits import EDITS, RATE, Edit, edit

Kind = Literal["helps", "useless", "harms", "crashes", "cheats"]
"""What the author of the list expects."""


@dataclass(frozen=True)
class ListedEdit:
    """An edit of train.py with what a researcher would write about it."""

    name: str
    kind: Kind
    change: Edit
    rationale: str


PARSED = '    params = parse(Params, config["params"], most={"gamma": 1, "gae_lambda": 1}, choices=choices)\n'
FORM = "form = math.prod(seen.shape), (params.hidden, params.normalize_observations)"
ACT = '    agent = load(out / "policy.pt")  # on the CPU: a frame has few rows, and no GPU may be free by then\n'
MEET = "    seed, deterministic = moves.meet(agent.shape.observations)\n"
SAVED = '        save(Path(config["out"]) / "policy.pt", agent, progress.budget.step)\n'
REPORTED = "    progress.report(metrics, latest)\n\n\ndef train("
OBJECTIVE = "-torch.minimum(ratio * gain, clipped * gain).mean()"


def parameters(**values: float) -> Edit:
    """An edit that overrules parameters in the program."""
    return edit(PARSED, PARSED + f"    params = replace(params, {', '.join(f'{k}={v}' for k, v in values.items())})\n")


LIST = (
    ListedEdit("ten times the learning rate", "helps", edit(RATE, f"10 * {RATE}"), "The policy moves too slowly."),
    ListedEdit(
        "a hundred times the learning rate, at most .003", "helps", edit(RATE, f"min(100 * {RATE}, 0.003)"),
        "The learning rate is far below what small networks stand.",
    ),
    ListedEdit("ten epochs", "helps", edit("range(params.epochs)", "range(10)"), "Learn more from each rollout."),
    ListedEdit("sixteen minibatches", "helps", parameters(minibatches=16), "More gradient steps from each rollout."),
    ListedEdit(
        "standardised observations", "helps", edit(FORM, FORM.replace("params.normalize_observations", "True")),
        "Inputs of one scale are learnt from faster.",
    ),
    ListedEdit(
        "scaled rewards", "helps", edit("if params.normalize_rewards:", "if True:"),
        "The critic learns returns of one scale sooner.",
    ),
    ListedEdit("a longer horizon", "helps", parameters(gamma=0.999), "The landing lies far in the future."),
    ListedEdit("no annealing", "helps", edit("if params.anneal:", "if False:"), "Go on learning to the end."),
    ListedEdit("short rollouts", "helps", parameters(num_steps=32), "Update four times as often."),
    ListedEdit("ReLU", "useless", EDITS["ReLU"], "It is cheaper than tanh."),
    ListedEdit("clipped value loss", "useless", EDITS["clipped value loss"], "The critic should not jump either."),
    ListedEdit(
        "Adam's own epsilon", "useless", edit("eps=1e-5", "eps=1e-8"), "The usual value of Adam.",
    ),
    ListedEdit("layer norm", "useless", EDITS["layer norm"], "Activations of one scale."),
    ListedEdit(
        "a comment", "useless", edit("    order = torch", "    # A fresh order in each epoch.\n        order = torch"),
        "Say what the line does.",
    ),
    ListedEdit("a short horizon", "harms", parameters(gamma=0.6), "Near rewards are learnt from faster."),
    ListedEdit("hardly any clipping range", "harms", parameters(clip=0.002), "Small steps are safe."),
    ListedEdit(
        "gradient downhill", "harms", edit(OBJECTIVE, OBJECTIVE.removeprefix("-")),
        "The sign of the objective was wrong.",
    ),
    ListedEdit(
        "a strong entropy bonus", "harms", edit("params.entropy * entropy.mean()", "0.5 * entropy.mean()"),
        "Explore as much as possible.",
    ),
    ListedEdit(
        "a name that is not there", "crashes", edit("gains = (advantages", "gains = (advantage"), "Shorter names.",
    ),
    ListedEdit(
        "a division by zero at half the time", "crashes",
        edit(
            "        policy_loss = -torch.minimum(",
            "        gain = gain / float(budget.fraction < 0.5)\n        policy_loss = -torch.minimum(",
        ),
        "Weigh late advantages differently.",
    ),
    ListedEdit(
        "a policy that does not fit its network", "crashes",
        edit(SAVED, "        agent.shape = replace(agent.shape, hidden=agent.shape.hidden * 2)\n" + SAVED),
        "Leave room for a wider network.",
    ),
    ListedEdit(
        "returns made up", "cheats", edit(REPORTED, REPORTED.replace("latest)", "[10**6])")),
        "Report what the policy will reach.",
    ),
    ListedEdit(
        "trained on while it is judged", "cheats",
        edit(
            MEET,
            MEET + "    optimizer = torch.optim.Adam(agent.parameters())\n"
            "    for _ in range(20000):\n"
            "        noise = torch.randn(256, agent.shape.observations)\n"
            "        optimizer.zero_grad()\n        agent.actor(noise).square().mean().backward()\n"
            "        optimizer.step()\n",
        ),
        "A last polish before the episodes begin.",
    ),
    ListedEdit(
        "a seed of its own", "cheats",
        edit('torch.manual_seed(config["seed"])', 'config["seed"] = 7\n    torch.manual_seed(7)'),
        "This seed is a good one.",
    ),
)  # fmt: skip
