"""Proposals that wait for a person: trials/0007/parked.json has the request, and the ledger's first `answer` counts.

A rejected proposal keeps its number and is never trained.
"""

import glob
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.trial import Parked

NAME = "parked.json"

PARKED = TypeAdapter(Parked)


def park(ledger: Ledger, parked: Parked) -> None:
    write_atomic(ledger.place(parked.number).path / NAME, PARKED.dump_json(parked, indent=2) + b"\n", lasting=True)


def answer(ledger: Ledger, number: int, approved: bool, comment: str, by: str) -> None:
    """Store an answer; the first one counts."""
    ledger.event("answer", trial=number, approved=approved, by=by, comment=comment)


def parked(ledger: Ledger) -> tuple[Parked, ...]:
    # Not Path.glob, which is slow where there are many, and this is asked often.
    paths = sorted(glob.glob(f"{glob.escape(str(ledger.trials))}/*/{NAME}"))  # noqa: PTH207
    requests = [PARKED.validate_json(Path(path).read_bytes()) for path in paths]
    given = [event for event in ledger.events() if event["event"] == "answer"] if requests else []
    answers = {event["trial"]: event for event in reversed(given)}
    return tuple(
        replace(one, state="approved" if answer["approved"] else "rejected", comment=answer["comment"])
        if (answer := answers.get(one.number))
        else one
        for one in requests
    )
