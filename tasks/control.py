"""The control of a would-be champion: what it scores without its training.

A program may score well without learning: a hand-written controller, finished weights, planning with a simulator. Its
trial is not kept (tasks/decide.py), unless the environment allows it.

The program is stopped after a hundredth of its training time. Where the environment's own program leaves a checkpoint
when stopped so early, an edited one must too. An untrained network may play well by luck, so one that then beats the
baseline is run so under another seed too, and the worse score counts. A baseline that trains for less than
SHORTEST_SECONDS cannot be stopped so early: there is no control then, and the verdict says so.

A program that detects the control and then plays badly is *not* caught.
"""

from __future__ import annotations

from dataclasses import replace

from prefect import State, task

from environments.score import Score, Wait
from tasks.bench import Bench, RunPlan
from tasks.checkpoint import KEPT, ended
from tasks.evaluate import judge_run
from tasks.machine.slots import Slot
from tasks.remote_session import Cut
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.task_key import TaskKey
from tasks.train import run_program
from tasks.trial import NO_CONTROL, History, Proposal, Run, UntrainedControl, baseline, measured

SHARE = 0.01
"""Of its training time: at most one update, for a program that checks the clock once per update."""
SHORTEST_SECONDS = 0.5
"""A baseline's training in which a program can be stopped early."""
STARTUP_SHARE = 0.1
"""Of the time of a program that never reports `ready`."""


@task(**KEPT, cache_key_fn=lambda _, given: f"{given['key']}/control")
def control(
    key: TaskKey, bench: Bench, plan: RunPlan, need: Wait | None, first: tuple[Run, Score]
) -> State[UntrainedControl]:
    """Repeat a run, stop it after a hundredth of its time, and judge what it left. (first: the run of the baseline that
    it is controlled with)
    """
    bench.ledger.verify()
    with bench.slot(key) as slot:
        found = control_of(bench, plan, need, first, slot)
    score = found.score
    words = f"no score: {score.error}" if score.value is None else f"score {score.value:.4g}"
    return ended(found, f"{words} without training")


def baseline_need(history: History, proposal: Proposal) -> Wait | None:
    """The most that the baseline needed under judgement, by which the judge waits for a program, which could train on
    there. None for the baseline's own, and while none is known.
    """
    first = baseline(history)
    needs = [score.waited for score in measured(history, 0) if score.waited is not None]
    if first is None or first.proposal == proposal or not needs:
        return None
    return max(needs, key=lambda one: one.ready + one.answering)


def control_of(
    bench: Bench, plan: RunPlan, need: Wait | None, first: tuple[Run, Score], slot: Slot
) -> UntrainedControl:
    trained = plan.control_of
    assert trained is not None, "it was trained"
    environment, isolation, program, place = bench.environment, bench.isolation, bench.program, bench.dir(plan)
    marker, proposal, seed = plan.key.marker(bench.launched), plan.proposal, bench.ledger.seed("control", plan.key)
    startup = environment.startup_seconds  # nothing before `ready` counts as training
    if trained.startup is None:
        startup = min(startup, trained.seconds * STARTUP_SHARE)
    cut = Cut(startup, trained.seconds * SHARE)

    def scored(name: str, proposal: Proposal, training_seed: int = trained.seed) -> Score:
        aside = TrialDir(place.path / name)
        aside.path.mkdir(exist_ok=True)
        run = run_program(marker, environment, isolation, program, aside, proposal, training_seed, cut, slot=slot)
        score = judge_run(marker, environment, isolation, aside, run, seed, slot, need=need)
        for large in (aside.out, aside.workspace):  # its logs are enough
            file_trees.remove(large)
        return score

    first_run, first_score = first
    if first_run.seconds < SHORTEST_SECONDS:
        return UntrainedControl(Score.missing(NO_CONTROL, environment.higher_is_better))
    score = scored("untrained", proposal)
    is_worse = first_score.value is not None and score.utility <= first_score.utility
    if score.value is not None and not is_worse:  # by luck, or whatever the seed
        again = scored("untrained-again", proposal, trained.seed ^ 1)
        score = again if again.value is not None and again.utility < score.utility else score
    is_hidden = proposal.edit and score.value is None
    return UntrainedControl(score, scored("untrained-unedited", replace(proposal, edit=None)) if is_hidden else None)
