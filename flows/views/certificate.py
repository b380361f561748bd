"""Certificates as the status shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tasks.certifying.aggregate import aggregates
from tasks.certifying.certificate import Certificate
from tasks.certifying.group_design import Arm
from tasks.describe import ARMS, caution, outcome, over_environments, where
from tasks.plots.forest import forest


def of_certificate(one: Certificate) -> dict[str, Any]:
    """One certificate."""
    test = one.comparison
    return {
        "environment": one.environment,
        "budget": one.budget,
        "where": where(one),
        "changed": one.conditions.changed,
        "left_out": list(one.conditions.left_out),
        "look": one.look,
        "alpha": one.alpha,
        "trial": one.champion,
        "passed": one.passed,
        "reason": one.reason,
        "level": one.tested_at,
        "gain": test and _finite(test.gain),
        # The interval that belongs to the test: of a passed one, `low` is above 0.
        "low": _finite(one.bounds[0]) if one.bounds else None,
        "high": _finite(one.bounds[1]) if one.bounds else None,
        "p": test and _finite(test.p),
        "expected": one.expected,
        "runs": len(one.scores("champion")),
        "planned": dict(zip(ARMS, one.planned, strict=True)),
        "looks": [list(group) for group in one.design.groups] if one.design else [list(one.planned)],
        "reused": [run.score.value for run in one.reused],
        "not_reused": one.not_reused,
        "collapsed": dict(zip(ARMS, one.collapsed, strict=True)),
        "same_units": one.same_units,
        "machines": list(one.machines),
        "champion": _arm(one, "champion"),
        "baseline": _arm(one, "baseline"),
        "guards": [
            asdict(guard) | {"loss": _finite(guard.loss), "bound": _finite(guard.bound), "holds": guard.holds}
            for guard in one.guards
        ],
        "looked_before": one.looked_before,
        "words": outcome(one),
        "caution": caution(one),
    }


def of_settings(every: Sequence[Certificate]) -> dict[str, Any] | None:
    """All environments and budgets side by side, and over several of them; None without a certificate elsewhere."""
    shown = forest(every)
    over = [asdict(one) | {"words": over_environments(one)} for one in aggregates(every)]
    return asdict(shown) | {"aggregates": over} if shown else None


def _arm(one: Certificate, arm: Arm) -> dict[str, Any]:
    mean = one.mean(arm)
    return {"mean": mean and _finite(mean), "values": [score.value for score in one.scores(arm)]}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
