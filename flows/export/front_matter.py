"""The front matter of a model card: what a hub and its search read of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from environments import Environment, judge_name
from flows.export.hub import library
from tasks.certifying.certificate import Certificate
from tasks.system.redact import scrub_text
from tasks.trial import Trial

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

LIBRARY = "nightshift"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
TASKS = {"control": "reinforcement-learning", "text": "text-generation"}
"""The hub's task of a judge; what other judges measure may be anything."""
TAGS = {"control": ("reinforcement-learning", "deep-reinforcement-learning")}


def front_matter(environment: Environment, trial: Trial, certificate: Certificate | None, name: str) -> str:
    """The YAML at the beginning of a card, with its fences."""
    judge = judge_name(environment.judge)
    data = library().ModelCardData(
        library_name=LIBRARY,
        pipeline_tag=TASKS.get(judge),
        tags=[LIBRARY, *TAGS.get(judge, ("reinforcement-learning",)), environment.trainer, environment.name],
        base_model=_made_from(environment, "model"),
        datasets=_made_from(environment, "dataset"),
        model_name=name,
        eval_results=_results(environment, trial, certificate),
    )
    return f"---\n{scrub_text(data.to_yaml())}\n---\n\n"


def _results(environment: Environment, trial: Trial, certificate: Certificate | None) -> list[EvalResult] | None:
    """The mean of the certificate's fresh runs, or else the score of the search; None without a score."""
    value = certificate.mean("champion") if certificate else trial.score.value
    if value is None:
        return None
    runs = len(certificate.scores("champion")) if certificate else 0
    task = TASKS.get(judge_name(environment.judge), "other")
    problem = str(getattr(environment.judge, "id", "")) or _made_from(environment, "dataset") or environment.name
    how = f"mean of {runs} fresh runs" if certificate else "of the search, not certified"
    return [
        library().EvalResult(
            task_type=task, task_name=task.replace("-", " "), dataset_type=problem, dataset_name=problem,
            metric_type=environment.metric, metric_name=f"{environment.metric} ({how})", metric_value=value,
        )
    ]  # fmt: skip


def _made_from(environment: Environment, what: str) -> str | None:
    """A model or data set of the hub that the recipe begins with; a folder of this machine is none."""
    stated = environment.prepare.settings.get(what) if environment.prepare else None
    return stated if isinstance(stated, str) and HUB_ID.fullmatch(stated) else None
