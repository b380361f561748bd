"""LLM: a language model reads the history and proposes parameters within the space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from environments.space import Choice, Float, Int, Parameter, Space
from tasks.llm.account import Account
from tasks.llm.answers import ParsedAnswer, ideas
from tasks.llm.chat import Answer, ask
from tasks.llm.prompt_parts import start
from tasks.llm.reading import Misread
from tasks.proposers._researcher import Researcher, conversation, suggestion
from tasks.proposing.brief import Brief, Suggestion, Unusable
from tasks.proposing.duplicates import EarlierProposal, duplicate
from tasks.trial import NOTHING_BOUGHT, Usage


class Llm(Researcher):
    """Parameters by a language model, which reads the problem, the champion and the outcome of every trial.

    What it does not state stays at the champion's value. An answer with values that the space does not
    take is refused with every fault in it.
    """

    def propose(self, brief: Brief) -> Suggestion:
        return proposed(self.accounts()[0], brief, brief)

    def several(self, brief: Brief, count: int) -> tuple[Suggestion, ...]:
        """So many suggestions from one answer; fewer where some are unusable or repeat each other.

        What the answer cost is counted with the first one.
        """
        if count < 2:
            return (self.propose(brief),) if count else ()
        account = self.accounts()[0]
        answer, found = _answered(account, brief, brief, count, NOTHING_BOUGHT)
        different = _different(brief, found)
        if not different:
            reason = "every proposal repeats one that is under way: propose something else"
            raise Unusable(reason, answer.text, answer.usage)
        first, *others = different[:count]
        free = (suggestion(idea, brief, account, NOTHING_BOUGHT) for idea in others)
        return (suggestion(first, brief, account, answer.usage), *free)


def proposed(account: Account, brief: Brief, shown: Brief, bought: Usage = NOTHING_BOUGHT) -> Suggestion:
    """Parameters as one model proposes them; what it does not state stays as the champion of `shown` has it.

    Raises:
        Unusable: the answer states no parameters, or some that the space does not take.
        Unavailable: there is none.
    """
    answer, found = _answered(account, brief, shown, 1, bought)
    return suggestion(found[0], shown, account, answer.usage)


def schema(space: Space, count: int) -> dict[str, Any]:
    """The JSON schema of an answer with `count` proposals; null leaves a parameter as it is."""
    one = _object(
        rationale={"type": "string"},
        category={"type": "string"},
        params=_object(**{name: _values(parameter) for name, parameter in space.items()}),
        expected={"type": ["number", "null"]},
    )
    if count == 1:
        return one
    return _object(proposals={"type": "array", "items": one, "minItems": count, "maxItems": count})


def _answered(
    account: Account, brief: Brief, shown: Brief, count: int, bought: Usage
) -> tuple[Answer, list[ParsedAnswer]]:
    """One answer, and the ideas in it: at least one."""
    messages = conversation("parameters", brief, shown, count=count)
    answer = ask(account, messages, brief, schema(brief.space, count), bought=bought)
    try:
        found, faults = ideas(answer.text, brief.space, brief.problem.fixed)
    except Misread as wrong:
        raise Unusable(str(wrong), answer.text, answer.usage) from wrong
    if not found:
        reason = "\n".join(faults) or "there is no proposal in the answer"
        raise Unusable(reason, answer.text, answer.usage)
    return answer, found


def _different(brief: Brief, found: Sequence[ParsedAnswer]) -> list[ParsedAnswer]:
    """The ideas that repeat neither each other nor what is under way."""
    pending = [(number, one.params) for number, one in brief.pending.items() if not one.edit]
    taken = [EarlierProposal(number, params, {}, "under way") for number, params in pending]
    kept = []
    for idea in found:
        params = {**start(brief), **idea.params}
        if duplicate(brief.space, params, {}, taken) is None:
            taken.append(EarlierProposal(0, params, {}, "proposed beside it"))
            kept.append(idea)
    return kept


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    # Some providers take a schema only where nothing is optional, and nothing may be added.
    closed = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **closed}


def _values(parameter: Parameter) -> dict[str, Any]:
    """The values that a parameter takes, and null."""
    if isinstance(parameter, Choice):
        kinds = {bool: "boolean", str: "string", int: "number", float: "number"}
        types = list(dict.fromkeys(kinds[type(value)] for value in parameter.values))
        return {"type": [*types, "null"], "enum": [*parameter.values, None]}
    kind = {Float: "number", Int: "integer"}[type(parameter)]
    return {"type": [kind, "null"], "minimum": parameter.low, "maximum": parameter.high}
