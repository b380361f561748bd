"""Trainings at the reference endpoint of the documentation: judged here, paid for, and removed in whatever way they end."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.blocks.system import Secret
from prefect.settings import PREFECT_API_URL, temporary_settings

import environments
from environments import Environment
from environments.limits import Limits
from environments.plugins import Refused
from environments.remote import Address
from tasks import evaluate, train
from tasks.evaluate import judge_run
from tasks.remote import jobs
from tasks.remote.endpoint import EndpointFault, RemoteEndpoint, TrialFault
from tasks.remote.places import http
from tasks.remote_session import Cut, fetch
from tasks.sandbox.program import CannotStart
from tasks.store.workspace import TrialDir
from tasks.system.redact import scrub_text
from tests.support.endpoints import TOKEN, RunningEndpoint, frozen, reference, remote_quadratic, trained
from tests.support.toy import FIT, SANDBOX
from tests.support.web import Handler, serving

READY = '{"ready": true}\n{"elapsed": 0, "metrics": {"loss": 9.0}}\n'
REPORTS = f'(args.out / "progress.jsonl").write_text({READY!r})\n'
CHILD = f"""\
import pathlib, signal, sys
out = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: None)
(out / "progress.jsonl").write_text({READY!r})
signal.pause()
(out / "model.json").write_text('{{"x": 2}}')
"""
PARENT = FIT.partition('(args.out / "model.json")')[0] + (
    "import signal, subprocess, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: None)\n"
    f"subprocess.run([sys.executable, '-c', {CHILD!r}, str(args.out)], check=True)\n"
)
"""It is ready at once, and what it has started saves when it is told that the budget is over."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEndpoint]:
    with reference(tmp_path_factory.mktemp("endpoint"), "--machines", "2") as running:
        yield running


@pytest.fixture
def endpoint(running: RunningEndpoint, home: Path) -> Iterator[RunningEndpoint]:
    """An endpoint at which a test leaves nothing, however its trainings end."""
    yield running
    assert not running.left and not open_jobs(home)


def problem(folder: Path, url: str, fit: str = FIT, http: str = "") -> Environment:
    remote_quadratic(folder / "quad", url, fit, http=http)
    return frozen(folder)


def open_jobs(home: Path) -> list[str]:
    return sorted(path.name for path in (home / ".remote").glob("*.json"))


def test_a_trial_that_an_endpoint_trains_is_judged_here_costs_its_seconds_and_leaves_nothing_there(
    tmp_path: Path, home: Path, endpoint: RunningEndpoint
) -> None:
    environment, before = problem(tmp_path, endpoint.url, FIT + REPORTS, "usd_per_second = 0.5"), len(endpoint.starts)

    run = trained(environment, tmp_path)

    assert (run.status, run.error, run.isolation, run.reported) == ("finished", None, "remote", 9.0)
    assert 0 < run.usd < 0.5 * (run.wall_seconds + 0.1)
    (job,) = (tmp_path / "trials/0001/remote.jsonl").read_text().splitlines()
    assert json.loads(job)["usd"] == pytest.approx(run.usd, abs=1e-6)
    assert judge_run("judge", environment, SANDBOX, TrialDir(tmp_path / "trials/0001"), run, 1).value == 1.0
    assert len(endpoint.starts) == before + 1


def test_at_the_end_of_the_budget_a_program_and_what_it_has_started_may_save_and_earlier_where_it_is_cut_or_loses(
    tmp_path: Path, home: Path, endpoint: RunningEndpoint
) -> None:
    environment = problem(tmp_path, endpoint.url, PARENT)
    environment = environment.model_copy(update={"budget_seconds": 0.6, "grace_seconds": 30})

    whole, short = trained(environment, tmp_path), trained(environment, tmp_path, cut=Cut(2.0, 0.2))
    longer = environment.model_copy(update={"budget_seconds": 5})
    worse = trained(longer, tmp_path, reason_to_stop=lambda curve: "too bad" if curve[-1] == 9.0 else None)

    assert (whole.error, short.error) == (None, None)
    assert 0.6 <= whole.seconds < 30 and len(whole.curve) == 20
    assert worse.status == "cancelled" and worse.due is not None and worse.due.reason == "too bad"


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


def test_a_trial_of_an_endpoint_that_was_away_is_adopted_and_not_started_again(tmp_path: Path, home: Path) -> None:
    with reference(tmp_path / "endpoint") as away:
        environment = problem(
            tmp_path, away.url, FIT + REPORTS + "import time\ntime.sleep(5)\n", "answer_seconds = 1\naway_seconds = 2"
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

    def begun(run: str, url: str, seconds: float) -> jobs.RemoteJob:
        settings = problem(tmp_path / run / str(seconds), url).remote
        assert settings is not None
        return jobs.begin(f"{run}/0001", "http", settings, seconds, tmp_path / "costs", adopt=True)

    left, kept = begun("a", endpoint.url, 100.0), begun("b", endpoint.url, 100.0)
    away = begun("c", "http://127.0.0.1:9", 0.0)
    assert not left.path.stat().st_mode & 0o077, "its token is in it"
    left.lock.release()  # as the end of its process would

    assert [job.key for job in jobs.unfollowed()] == [left.key]
    assert jobs.sweep(jobs.is_over) == (), "it may still be adopted"
    (said,) = jobs.sweep(jobs.is_of("a"))
    assert left.key in said and left.path.name not in open_jobs(home)
    again = begun("b", endpoint.url, 99.0)
    assert again.key != kept.key, "nobody adopts what is followed"
    assert [job.end() for job in (kept, again)] == [None, None]

    assert "is not removed" in str(away.end(patience=0.1))
    away.lock.release()
    assert not json.loads((tmp_path / "costs").read_text().splitlines()[-1])["removed"]
    assert [jobs.is_over(job) for job in jobs.unfollowed()] == [True]
    away.path.unlink()


def test_a_wrong_login_says_so_and_the_right_one_is_sent(tmp_path: Path, home: Path, server: str) -> None:
    with reference(tmp_path / "endpoint", token=TOKEN) as closed:
        environment = problem(tmp_path, closed.url)
        with pytest.raises(CannotStart, match=r"401.*login"):
            trained(environment, tmp_path)
        assert environment.remote is not None
        named = environment.remote.model_copy(update={"url": "", "block": "mine"})

        jobs.sweep(lambda job: True)
        with temporary_settings({PREFECT_API_URL: server}):
            Secret(value={"url": closed.url, "token": TOKEN}).save("mine", overwrite=True)
            run = trained(environment.model_copy(update={"remote": named}), tmp_path)

        assert run.error is None


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
    environment = frozen(tmp_path)
    evaluate.check(environment)
    run = trained(environment, tmp_path)

    score = judge_run("judge", environment, SANDBOX, TrialDir(tmp_path / "trials/0001"), run, 1)

    assert (score.value, score.error) == (0.25, None)
    with pytest.raises(Refused, match="would score itself"):
        evaluate.check(environment.model_copy(update={"trainer": "command", "remote": None}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("--out {out}", "--out {out} --data {prepared}"), r"prepared.*folder of this machine"),
        (('url = "http://', 'url = "http://me:secret@'), "save a block with the address"),
    ],
)
def test_a_section_that_cannot_be_followed_is_refused(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    source = remote_quadratic(tmp_path, "http://127.0.0.1:9") / "environment.toml"
    source.write_text(source.read_text().replace(*change))

    with pytest.raises(Refused, match=reason):
        train.check(environments.load(source.parent))


# What comes back from an endpoint is brought into out/ under limits, whatever the endpoint says.


CONTENT = bytes(range(256)) * 1000
LIMITS = Limits(out_files=3, out_gb=0.001, file_gb=0.001)


class Endpoint(Handler):
    told: SimpleNamespace
    """What a test tells it to answer: its list of files, and how many answers end in their middle before one is whole."""

    def do_GET(self) -> None:
        is_list = self.path.endswith("/files")
        content = json.dumps(self.told.listed).encode() if is_list else CONTENT
        is_cut = self.told.cuts > 0 and not is_list
        self.told.cuts -= is_cut
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if is_cut else content)


@pytest.fixture
def told() -> Iterator[tuple[SimpleNamespace, RemoteEndpoint]]:
    told = SimpleNamespace(listed=None, cuts=0)
    with serving(Endpoint, told=told) as url, RemoteEndpoint(Address(url=url), 2.0, 2.0) as endpoint:
        yield told, endpoint


def entry(path: str, size: int = len(CONTENT), content: bytes = CONTENT) -> dict[str, object]:
    return {"path": path, "bytes": size, "sha256": hashlib.sha256(content).hexdigest()}


def test_a_download_that_is_cut_begins_again(told: tuple[SimpleNamespace, RemoteEndpoint], tmp_path: Path) -> None:
    answers, endpoint = told
    answers.listed, answers.cuts = [entry("a/model.bin"), entry("progress.jsonl")], 2

    fetch(endpoint, "key", tmp_path, LIMITS)

    assert (tmp_path / "a/model.bin").read_bytes() == CONTENT
    assert answers.cuts == 0
    assert not (tmp_path / "progress.jsonl").exists(), "the reports are ours already"


@pytest.mark.parametrize(
    ("listed", "kind", "reason"),
    [
        ([entry("../x")], TrialFault, "leads out"),
        ([entry("a"), entry("a/b")], TrialFault, "cannot be written"),
        ([entry(name) for name in "abcd"], TrialFault, "3 files"),
        ([entry("a", 2 * 2**20)], TrialFault, "0.001 GiB"),
        ([entry("a", content=b"other")], EndpointFault, "another content"),
        ([entry("a", size=10)], EndpointFault, "another content"),
        ("x" * (17 * 2**20), EndpointFault, "another form"),
    ],
)
def test_names_that_lead_elsewhere_too_much_and_what_contradicts_its_list_are_not_taken(
    told: tuple[SimpleNamespace, RemoteEndpoint], tmp_path: Path, listed: object, kind: type[Exception], reason: str
) -> None:
    answers, endpoint = told
    answers.listed = listed
    (tmp_path / "out").mkdir()

    with pytest.raises(kind, match=reason):
        fetch(endpoint, "key", tmp_path / "out", LIMITS)

    assert {path.name for path in tmp_path.iterdir()} == {"out"}


# The login of an endpoint is read from a saved block, and sent to that block's address.


@pytest.mark.slow
def test_a_saved_login_is_read_with_its_address_and_never_shown(server: str) -> None:
    told = {
        "one": {"url": "https://one.example.org", "token": TOKEN},
        "two": {"url": "http://two.example.org", "token": TOKEN},
        "three": "a-password-of-something-else",
    }
    with temporary_settings({PREFECT_API_URL: server}):
        for name, value in told.items():
            Secret(value=value).save(f"endpoint-{name}", overwrite=True)
        one = http.of_block("endpoint-one")
        for name, reason in (("two", "use https"), ("three", "valid"), ("four", "Unable to find")):
            with pytest.raises(Refused, match=reason) as refused:
                http.of_block(f"endpoint-{name}")
            assert TOKEN not in str(refused.value) and "a-password" not in str(refused.value)

    assert (one.url, one.token) == ("https://one.example.org", TOKEN)
    assert TOKEN not in repr(one) and TOKEN not in scrub_text(f"it is {TOKEN}")
