"""The episode of champion and baseline: what is drawn, and that nothing hostile gets further than its reason."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image
from tasks.recording.stage import EpisodeStage

from environments.judges import Exam, Misbehaved
from environments.recording import CannotRecord, Film, RecordedControl, scaled
from flows.export.folder import export
from flows.report import page
from flows.report.facts import Facts
from flows.report.seeing import INLINE_BYTES, record
from flows.spec.campaign_spec import CampaignSpec
from flows.status import CampaignEnd
from tasks.recording import episode
from tasks.recording.episode import WORK
from tasks.sandbox import outputs
from tasks.sandbox.confinement import Level
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.system.orphans import marked
from tests.support.act_programs import PRELUDE, ZEROS, PipeCandidate, at_step
from tests.support.champions import CART, TILT
from tests.support.histories import tried
from tests.support.levels import STRONGEST
from tests.support.toy import SANDBOX, nightshift

FIELDS: dict[str, Any] = {
    "id": "CartPole-v1", "kwargs": {"render_mode": "rgb_array"}, "episodes": 1, "other_episodes": 0,
    "answer_seconds": 1.0, "start_seconds": 20.0,
}  # fmt: skip

PICKLED = """
import pickle
config = json.load(open("config.json"))
with open(os.path.join(config["out"], "policy.json"), "rb") as file:
    pickle.load(file)
"""


TRAINED = """
import json, pathlib, sys
if sys.argv[1:] != ["act"]:
    config = json.loads(pathlib.Path("config.json").read_text())
    policy = {"sign": 1 if config["params"]["x"] > 0.5 else -1, "seed": config["seed"]}
    pathlib.Path(config["out"], "policy.json").write_text(json.dumps(policy))
    sys.exit()
"""
"""Learns at once what to do where x is large, and else the opposite."""


class Fires:
    """A pickle that writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def night(
    folder: Path, act: str = TILT, checkpoints: tuple[bytes, bytes] = (b'{"sign": -1}', b'{"sign": 1}')
) -> Ledger:
    """A campaign in CartPole whose champion pushes towards the pole's tilt, and whose baseline away from it."""
    home = folder / "cart"
    home.mkdir()
    (home / "environment.toml").write_text(CART)
    (home / "train.py").write_text(PRELUDE + act)
    ledger = CampaignSpec.of(environment=str(home), name="night").open()
    history: tuple[Any, ...] = ()
    for checkpoint, value in zip(checkpoints, (9.0, 40.0), strict=True):
        trial = tried(history, value, params={"x": value / 100}, kind="keep")
        place = ledger.place_of(trial)
        program = workspace.prepare(place, ledger.program, ledger.environment, trial.proposal, seed=1)
        (place.out / "policy.json").write_bytes(checkpoint)
        run = replace(trial.runs[0], program=program, checkpoint=outputs.checkpoint(place.out))
        history += (replace(trial, runs=(run,)),)
        place.trial.write_bytes(workspace.TRIAL.dump_json(history[-1]))
    return ledger


def html(ledger: Ledger) -> str:
    return page.html(Facts.of(ledger, CampaignEnd("finished", "2 trials done")))


def test_baseline_and_champion_play_one_episode_side_by_side(tmp_path: Path, home: Path) -> None:
    ledger = night(tmp_path)

    record(ledger, SANDBOX.level)

    made = episode.load(ledger.path)
    assert made is not None and not made.reason, made
    first, second = made.episodes
    assert (first.name, second.name) == ("baseline", "champion") and first.total < second.total
    assert second.total == second.steps and not second.cut
    with Image.open(ledger.path / "episode.gif") as picture:
        assert picture.n_frames > 5 and picture.width <= 610  # type: ignore[attr-defined]
        begin = np.asarray(picture.convert("RGB"))
    half = begin.shape[1] // 2
    assert np.array_equal(begin[40:, : half - 2], begin[40:, half + 2 :]), "both begin alike"
    assert not list(ledger.path.glob(f"{WORK}*"))

    taken = export(ledger, tmp_path / "taken")
    assert (taken / "episode.gif").read_bytes() == (ledger.path / "episode.gif").read_bytes()
    assert "](episode.gif)" in (taken / "README.md").read_text()

    shown = html(ledger)
    assert "data:image/gif;base64," in shown and "prefers-reduced-motion" in shown and "The baseline: return" in shown

    stamp = (ledger.path / "episode.json").stat().st_mtime_ns
    record(ledger, SANDBOX.level)
    assert (ledger.path / "episode.json").stat().st_mtime_ns == stamp, "it was there"
    shutil.rmtree(ledger.place(1).out)  # as `prune` does
    record(ledger, SANDBOX.level)
    assert (ledger.path / "episode.json").stat().st_mtime_ns == stamp and html(ledger) == shown


@pytest.mark.skipif(SANDBOX.level == "none", reason="nothing confines a pickle here")
def test_a_pickle_that_goes_off_does_so_in_the_sandbox_of_its_program(tmp_path: Path, home: Path) -> None:
    fired = tmp_path / "fired"
    pickled = pickle.dumps(Fires(fired))
    ledger = night(tmp_path, PICKLED + ZEROS, (pickled, pickled))

    record(ledger, SANDBOX.level)

    assert not fired.exists()
    made = episode.load(ledger.path)
    assert made is not None and not made.reason and made.episodes[0].total == made.episodes[1].total


def test_a_checkpoint_that_is_not_what_was_judged_does_not_play(tmp_path: Path, home: Path) -> None:
    ledger = night(tmp_path)
    (ledger.place(0).out / "policy.json").write_bytes(b'{"sign": 1}')

    record(ledger, SANDBOX.level)

    assert not (ledger.path / "episode.gif").exists()
    made = episode.load(ledger.path)
    assert made is not None and "the baseline, trials/0000" in made.reason and "has changed" in made.reason
    shown = html(ledger)
    assert "No episode was recorded" in shown and "What failed" in shown


def test_a_baseline_that_stands_is_recorded_beside_nothing(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-planted-0123456789")  # what is shown of the baseline differs from its file
    ledger = night(tmp_path)
    first, second = ledger.history()
    shutil.rmtree(ledger.place_of(second).path)
    named = replace(first, proposal=replace(first.proposal, rationale="sk-planted-0123456789"))
    ledger.place_of(first).trial.write_bytes(workspace.TRIAL.dump_json(named))

    record(ledger, SANDBOX.level)

    assert not list(ledger.path.glob("episode.*"))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EpisodeStage]:
    with EpisodeStage(tmp_path_factory.mktemp("stage"), SANDBOX.level, (), f"stage/{os.getpid()}", 120) as stage:
        yield stage


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (at_step(4, "column[:] = 7"), "outside"),
        (at_step(4, "time.sleep(60)"), "did not answer"),
        (at_step(4, "os._exit(3)"), "ended with status 3"),
        (at_step(4, "say(b'much more' * 9)"), "step 4"),
        ('say(b\'{"failed": "I draw it"}\\n\')', "handshake"),
    ],
)
def test_a_hostile_policy_ends_its_episode_with_the_reason(
    stage: EpisodeStage, tmp_path: Path, act: str, reason: str
) -> None:
    with PipeCandidate.of(act, tmp_path) as policy, pytest.raises(Misbehaved, match=reason):
        stage.play("champion", FIELDS, 7, policy)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", STRONGEST)
def test_an_episode_is_drawn_at_every_level(tmp_path: Path, level: Level) -> None:
    with EpisodeStage(tmp_path, level, (), f"level/{os.getpid()}", 60) as stage:
        with PipeCandidate.of(ZEROS, tmp_path) as policy:
            assert stage.play("champion", FIELDS, 7, policy).steps > 3  # type: ignore[arg-type]
        assert len(stage.draw()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LunarLander-v3", "BipedalWalker-v3", "Pendulum-v1", "MountainCarContinuous-v0"])
def test_the_usual_environments_are_drawn(tmp_path: Path, name: str) -> None:
    with EpisodeStage(tmp_path, SANDBOX.level, (), f"drawn/{os.getpid()}", 120) as stage:
        for side in ("baseline", "champion"):
            with PipeCandidate.of(ZEROS, tmp_path) as policy:
                told = stage.play(side, {**FIELDS, "id": name}, 7, policy)  # type: ignore[arg-type]
            assert 0 < told.seconds <= 10
        files = stage.draw()

    with Image.open(io.BytesIO(files["episode.gif"])) as picture:
        assert picture.n_frames > 10 and picture.height > 100  # type: ignore[attr-defined]
    assert len(files["episode.gif"]) < INLINE_BYTES


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_campaign_ends_with_an_episode_in_its_report_and_in_mlflow(tmp_path: Path, home: Path, server: str) -> None:
    folder = tmp_path / "cart"
    folder.mkdir()
    (folder / "environment.toml").write_text(f"allow_untrained = true\n{CART}\n[limits]\nleast_seconds = 0\n")
    (folder / "train.py").write_text(TRAINED + PRELUDE + TILT)

    done = nightshift("run", str(folder), "--name", "night", "--rule", "greedy", "--trials", "3", server=server)

    assert done.returncode == 0, done.stderr

    ledger = Ledger.open("night")
    made = episode.load(ledger.path)
    assert made is not None and not made.reason, made
    assert "data:image/gif" in (ledger.path / "report.html").read_text()
    assert list(home.glob("**/artifacts/**/episode.gif"))


def test_an_environment_that_cannot_be_made_or_drawn_is_a_reason(stage: EpisodeStage, tmp_path: Path) -> None:
    with PipeCandidate.of(ZEROS, tmp_path) as policy, pytest.raises(Misbehaved, match="NoSuchThing"):
        stage.play("champion", {**FIELDS, "id": "NoSuchThing-v0"}, 7, policy)  # type: ignore[arg-type]

    class Blind(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Discrete(2)

    gymnasium.register("Blind-v0", Blind, max_episode_steps=3)
    judge = RecordedControl.of({**FIELDS, "id": "Blind-v0", "kwargs": {}}, Film("champion"))
    with pytest.raises(CannotRecord, match="rgb_array"):
        judge.score(None, Exam(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "picture", [None, "text", [], np.zeros((3, 4)), np.zeros((0, 4, 3)), np.zeros((4, 4, 4))], ids=str
)
def test_what_is_no_picture_is_refused(picture: object) -> None:
    with pytest.raises(CannotRecord, match="render"):
        scaled(picture)


def test_an_episode_of_whatever_shape_and_speed_is_small_and_short() -> None:
    for fps, shape in ((0.5, (3, 4000, 3)), (1e9, (700, 2, 3)), (50, (1, 1, 3))):
        film = Film("baseline", fps=fps)
        film.take(np.zeros(shape))

        assert max(film.pictures[0].size) <= 300 and min(film.pictures[0].size) >= 1
        assert 1 <= film.most_steps <= 1000 and film.stride >= 1


KILLED = """
import sys
from tasks.recording.episode import record
from tasks.store.ledger import Ledger
ledger = Ledger.open("night")
record(ledger, ledger.history()[1], None, sys.argv[1])
"""


def test_a_kill_while_it_records_leaves_no_process_and_no_half_file(tmp_path: Path, home: Path) -> None:
    ledger = night(tmp_path, "time.sleep(600)")
    engine = subprocess.Popen([sys.executable, "-c", KILLED, SANDBOX.level], cwd=Path(__file__).parents[2])
    name = f"{ledger.campaign.campaign_id}/recording-{engine.pid}"
    ends = time.monotonic() + 60
    while not (ledger.path / f"{WORK}{engine.pid}" / "baseline.txt").exists() and time.monotonic() < ends:
        time.sleep(0.05)
    engine.send_signal(signal.SIGKILL)
    engine.wait()

    while marked(name) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not marked(name)
    assert not list(ledger.path.glob("episode.*"))

    (ledger.place(0).out / "policy.json").write_bytes(b"so that the next one ends at once")
    record(ledger, SANDBOX.level)
    assert not list(ledger.path.glob(f"{WORK}*"))
    assert json.loads((ledger.path / "episode.json").read_text())["reason"]
