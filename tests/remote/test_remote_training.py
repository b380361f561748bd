"""Trainings at the reference endpoint of the documentation: judged here, paid for, and removed in whatever way they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from tasks import evaluate, train
from tasks.evaluate import judge_run
from tasks.remote import jobs
from tasks.remote.endpoint import Address
from tasks.remote.places import http
from tasks.sandbox.program import CannotStart
from tasks.store.ledger import freeze
from tasks.store.workspace import TrialDir
from tasks.train import Cut, run_program
from tasks.trial import Proposal, Run
from tests.support.endpoints import TOKEN, RunningEndpoint, reference, remote_quadratic
from tests.support.toy import FIT, SANDBOX

READY = '(args.out / "progress.jsonl").write_text(\'{"ready": true}\\n{"elapsed": 0, "metrics": {"loss": 9.0}}\\n\')\n'
AT_TWO = Proposal({"x": 2.0})
SLEEPS = FIT + READY + "import time\ntime.sleep(60)\n"
"""It is ready at once, has saved, and does not end by itself."""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEndpoint]:
    with reference(tmp_path_factory.mktemp("endpoint"), "--machines", "2") as running:
        yield running


def problem(folder: Path, url: str, fit: str = FIT, http: str = "") -> Environment:
    environment = environments.load(remote_quadratic(folder / "quad", url, fit, http=http))
    freeze(environment, folder)
    return environment


def trained(environment: Environment, folder: Path, proposal: Proposal = AT_TWO, **more: Any) -> Run:
    place = TrialDir(folder / "trials/0001")
    place.path.mkdir(parents=True, exist_ok=True)
    return run_program("campaign/0001/1/run-1", environment, SANDBOX, folder / "program", place, proposal, 7, **more)


def open_jobs(home: Path) -> list[str]:
    return sorted(path.name for path in (home / ".remote").glob("*.json"))


def test_a_trial_that_an_endpoint_trains_is_judged_here_costs_its_seconds_and_leaves_nothing_there(
    tmp_path: Path, home: Path, endpoint: RunningEndpoint
) -> None:
    environment, before = problem(tmp_path, endpoint.url, FIT + READY, "usd_per_second = 0.5"), len(endpoint.starts)

    run = trained(environment, tmp_path)

    assert (run.status, run.error, run.isolation, run.reported) == ("finished", None, "remote", 9.0)
    assert 0 < run.usd < 0.5 * (run.wall_seconds + 0.1)
    (job,) = (tmp_path / "trials/0001/remote.jsonl").read_text().splitlines()
    assert json.loads(job)["usd"] == pytest.approx(run.usd, abs=1e-6)
    assert judge_run("judge", environment, SANDBOX, TrialDir(tmp_path / "trials/0001"), run, 1).value == 1.0
    assert len(endpoint.starts) == before + 1 and not endpoint.left and not open_jobs(home)


def test_a_training_ends_with_its_budget_or_earlier_where_it_is_cut_or_loses(
    tmp_path: Path, home: Path, endpoint: RunningEndpoint
) -> None:
    environment = problem(tmp_path, endpoint.url, SLEEPS).model_copy(update={"budget_seconds": 0.6})

    whole, short = trained(environment, tmp_path), trained(environment, tmp_path, cut=Cut(2.0, 0.2))
    longer = environment.model_copy(update={"budget_seconds": 5})
    worse = trained(longer, tmp_path, reason_to_stop=lambda curve: "too bad" if curve[-1] == 9.0 else None)

    assert (whole.error, short.error) == (None, None)
    assert 0.6 <= whole.seconds < 3 and len(whole.curve) == 20
    assert worse.status == "cancelled" and worse.due is not None and worse.due.reason == "too bad"
    assert not endpoint.left and not open_jobs(home)


def test_a_program_that_fails_there_or_cannot_be_sent_is_a_crash_with_its_reason(
    tmp_path: Path, home: Path, endpoint: RunningEndpoint
) -> None:
    failing = problem(tmp_path / "one", endpoint.url, "print('no such data')\nraise SystemExit(3)\n")
    odd = problem(tmp_path / "two", endpoint.url, FIT + '(args.out / "progress.jsonl").write_text("nonsense\\n")\n')
    unsent = problem(tmp_path / "three", endpoint.url)
    (tmp_path / "three/program/fit.py").chmod(0o644)
    (tmp_path / "three/program/fit.py").write_bytes(b"\xff\xfe")

    runs = [trained(one, tmp_path / name) for one, name in ((failing, "one"), (odd, "two"), (unsent, "three"))]

    for run, reason in zip(runs, ("status 3\nno such data", "line 1 is not a report", "no UTF-8"), strict=True):
        assert run.status == "crash" and reason in str(run.error)
    assert not endpoint.left and not open_jobs(home)


@pytest.mark.slow
def test_an_endpoint_that_fails_half_of_the_time_starts_nothing_twice(tmp_path: Path, home: Path) -> None:
    with reference(tmp_path / "endpoint", "--faults", "0.5") as faulty:
        environment = problem(tmp_path, faulty.url, http="answer_seconds = 0.5")
        runs = [trained(environment, tmp_path) for _ in range(6)]

        assert [run.error for run in runs] == [None] * 6
        assert len(faulty.starts) == len(set(faulty.starts)) == 6
        assert not faulty.left and not open_jobs(home)


def test_a_trial_of_an_endpoint_that_was_away_is_adopted_and_not_started_again(tmp_path: Path, home: Path) -> None:
    with reference(tmp_path / "endpoint") as away:
        environment = problem(
            tmp_path, away.url, FIT + READY + "import time\ntime.sleep(2)\n", "answer_seconds = 1\naway_seconds = 2"
        ).model_copy(update={"budget_seconds": 10})

        def leave(curve: object) -> None:
            away.process.send_signal(signal.SIGSTOP)

        with pytest.raises(CannotStart, match="did not answer"):
            trained(environment, tmp_path, reason_to_stop=leave)
        (left,) = jobs.unfollowed()
        away.process.send_signal(signal.SIGCONT)
        run = trained(environment, tmp_path)

        assert run.error is None and left.key in (tmp_path / "trials/0001/remote.jsonl").read_text()
        assert len(away.starts) == 1 and not away.left and not open_jobs(home)


def test_what_a_dead_process_has_left_is_swept_now_or_later_and_what_is_followed_is_not(
    tmp_path: Path, home: Path, endpoint: RunningEndpoint
) -> None:
    home.mkdir()

    def begun(run: str, url: str, seconds: float) -> jobs.OpenJob:
        settings = problem(tmp_path / run / str(seconds), url).remote
        assert settings is not None
        return jobs.begin(f"{run}/0001", "http", settings, seconds, tmp_path / "costs", adopt=True)

    left, kept, away = (
        begun("a", endpoint.url, 100.0),
        begun("b", endpoint.url, 100.0),
        begun("c", "http://127.0.0.1:9", 0.0),
    )
    left.lock.release()  # as the end of its process would

    assert [job.key for job in jobs.unfollowed()] == [left.job.key]
    assert jobs.sweep(jobs.is_over) == (), "it may still be adopted"
    (said,) = jobs.sweep(jobs.is_of("a"))
    assert left.job.key in said and left.path.name not in open_jobs(home)
    again = begun("b", endpoint.url, 99.0)
    assert again.job.key != kept.job.key, "nobody adopts what is followed"
    assert [job.end() for job in (kept, again)] == [None, None]

    assert "is not removed" in str(away.end(patience=0.1))
    away.lock.release()
    assert not json.loads((tmp_path / "costs").read_text().splitlines()[-1])["removed"]
    assert [jobs.is_over(job) for job in jobs.unfollowed()] == [True]


def test_a_wrong_login_says_so_and_the_right_one_is_sent(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reference(tmp_path / "endpoint", token=TOKEN) as closed:
        environment = problem(tmp_path, closed.url)
        with pytest.raises(CannotStart, match=r"401.*login"):
            trained(environment, tmp_path)
        right = Address(closed.url, {"Authorization": f"Bearer {TOKEN}"})
        monkeypatch.setattr(http, "of_block", lambda name: right)
        assert environment.http is not None
        named = environment.http.model_copy(update={"url": "", "block": "mine"})

        jobs.sweep(lambda job: True)
        run = trained(environment.model_copy(update={"http": named}), tmp_path)

        assert run.error is None and TOKEN not in repr(right)


@pytest.mark.slow
def test_a_training_whose_engine_was_killed_is_adopted(tmp_path: Path, home: Path) -> None:
    with reference(tmp_path / "endpoint") as endpoint:
        problem(tmp_path, endpoint.url, FIT + READY + "import time\ntime.sleep(2)\n")
        engine = textwrap.dedent(f"""
            import pathlib, environments
            from tests.remote.test_remote_training import trained
            folder = pathlib.Path({str(tmp_path)!r})
            trained(environments.load(folder / "quad"), folder)
        """)
        with subprocess.Popen([sys.executable, "-c", engine], env={**os.environ, "PYTHONPATH": "."}) as first:
            deadline = time.monotonic() + 60
            while not endpoint.starts:
                assert time.monotonic() < deadline and first.poll() is None
                time.sleep(0.05)
            first.kill()
        run = trained(environments.load(tmp_path / "quad"), tmp_path)

        assert run.error is None and len(endpoint.starts) == 1
        assert not endpoint.left and not open_jobs(home)


def test_a_reported_score_is_taken_only_from_an_endpoint_and_under_a_name_that_says_so(
    tmp_path: Path, home: Path, endpoint: RunningEndpoint
) -> None:
    fit = FIT + '(args.out / "result.json").write_text(json.dumps({"score": 0.25}))\n'
    source = remote_quadratic(tmp_path / "quad", endpoint.url, fit) / "environment.toml"
    reported = source.read_text().replace('judge = "command"', 'judge = "reported"')
    source.write_text(reported.replace("[command]\neval_cmd", "[reported]\n#"))
    with pytest.raises(Refused, match="reported/loss"):
        evaluate.check(environments.load(source.parent))
    source.write_text(source.read_text().replace('metric = "loss"', 'metric = "reported/loss"'))
    environment = environments.load(source.parent)
    evaluate.check(environment)
    freeze(environment, tmp_path)
    run = trained(environment, tmp_path)

    score = judge_run("judge", environment, SANDBOX, TrialDir(tmp_path / "trials/0001"), run, 1)

    assert (score.value, score.error) == (0.25, None)
    with pytest.raises(Refused, match="would score itself"):
        evaluate.check(environment.model_copy(update={"trainer": "command", "http": None}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("--out {out}", "--out {out} --data {prepared}"), r"prepared.*folder of this machine"),
        (('url = "http://', 'url = "http://me:secret@'), "save a block with the login"),
    ],
)
def test_a_section_that_cannot_be_followed_is_refused(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    source = remote_quadratic(tmp_path, "http://127.0.0.1:9") / "environment.toml"
    source.write_text(source.read_text().replace(*change))

    with pytest.raises(Refused, match=reason):
        train.check(environments.load(source.parent))
