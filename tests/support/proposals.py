"""Desks for the tests: what the engine would propose, without a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from environments import Environment
from tasks import propose
from tasks.machine.slots import Slots
from tasks.proposers import Proposer
from tasks.proposers.tpe import Tpe
from tasks.proposing.brief import Brief
from tasks.proposing.validation import ProposalChecks, champions_files
from tasks.store.workspace import TrialDir
from tasks.trial import History, Proposal
from tests.support.toy import SANDBOX

NOWHERE = TrialDir(Path("/nonexistent/trials/0001"))


def desk_of(environment: Environment, place: TrialDir = NOWHERE) -> ProposalChecks:
    """A desk whose baseline program is what lies in the environment's folder."""
    return ProposalChecks(environment, SANDBOX, environment.folder, place, "a-test/0001/1", Slots.of_cores(0))


def brief_of(
    environment: Environment, history: History, seed: int = 0, pending: Mapping[int, Proposal] | None = None
) -> Brief:
    return Brief(
        environment.space,
        history,
        pending or {},
        seed,
        problem=environment,
        files=champions_files(environment, environment.folder, history),
    )


def next_proposal(
    environment: Environment,
    proposer: Proposer,
    history: History,
    seed: int,
    pending: Mapping[int, Proposal] | None = None,
) -> Proposal | None:
    """What the engine would try next."""
    brief = brief_of(environment, history, seed, pending)
    found = propose.next_proposal(desk_of(environment), proposer, Tpe(), brief)
    return found if isinstance(found, Proposal) else None
