"""The text judge: real pipes, a real taskset, and a score only where every question was answered."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import environments
from environments import Environment
from environments.judges import ComparisonBlock, Exam, Misbehaved
from environments.judges.text import Text, share_of
from environments.score import Score
from tasks.evaluate import judge_run
from tasks.sandbox import outputs
from tasks.sandbox.isolation import Isolation
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.trial import Run
from tests.support import tiny_model
from tests.support.act_programs import PipeCandidate
from tests.support.fake_llm import FakeLLM, Reply
from tests.support.text_exam import GENERATOR_OF, RIGHT, exam, hollow_model, questions, stand_in
from tests.support.toy import SANDBOX


def judged(body: str, folder: Path, look: Exam, prelude: str = GENERATOR_OF, **settings: Any) -> Score:
    """The score that a scripted generator gets."""
    (folder / "generator.py").write_text(f"{prelude}\n{body}")
    judge = Text(**{"questions": 0, "samples": 2, "max_tokens": 8, "start_seconds": 30, **settings})
    with PipeCandidate([sys.executable, "-IS", "generator.py"], folder) as candidate:
        return judge.score(candidate, look)


def answers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]


HALF = """
say({"ready": True})
request = hear()
for index, prompt in enumerate(request["prompts"]):
    texts = [text(right(prompt) if at % 2 else "none", cut=not at) for at in range(request["samples"])]
    say({"index": index, "completions": texts, "tokens": 5 * len(texts)})
"""
"""Every second sample is right; each first one is cut."""


# What is measured


def test_a_unit_is_the_mean_reward_of_a_questions_samples_and_the_rest_stands_beside(tmp_path: Path) -> None:
    score = judged(HALF, tmp_path, exam(tmp_path, questions(5)), samples=4)
    assert score.units == (0.5,) * 5 and score.value == 0.5
    assert score.also == {"tokens/mean": 5.0, "truncated/share": 0.25}
    first = answers(tmp_path)[0]
    assert first["expected"] == str(eval(first["text"]))
    assert sorted(first["sampled"]["completions"]) == sorted([first["expected"], "none"] * 2)
    assert sorted(first["sampled"]["rewards"]) == [0.0, 0.0, 1.0, 1.0]


def test_a_taskset_of_plain_functions_asks_and_pays_with_all_that_a_line_holds(tmp_path: Path) -> None:
    look = exam(tmp_path, [row | {"unit": "m"} for row in questions(3)])
    (tmp_path / "taskset.py").write_text(
        'def prompt(question):\n    return [{"role": "system", "content": "Add."}, {"role": "user", "content": question}]\n'
        'def reward(question, completion, answer, unit):\n    return float(completion == answer and unit == "m")\n'
    )
    assert judged(HALF, tmp_path, look).units == (0.5,) * 3


def test_the_seed_draws_the_questions_and_their_order_and_the_samples(tmp_path: Path) -> None:
    def asked(seed: int) -> tuple[list[str], dict[str, Any]]:
        spy = RIGHT.replace("request = hear()", "request = hear()\nopen('log', 'w').write(json.dumps(request))")
        judged(spy, tmp_path, exam(tmp_path, questions(40), seed), questions=10)
        return [kept["question"] for kept in answers(tmp_path)], json.loads((tmp_path / "log").read_text())

    assert asked(1) == asked(1)
    first, other = asked(1), asked(2)
    assert len(set(first[0])) == 10 and set(first[0]) != set(other[0]) and first[0] != sorted(first[0])
    assert first[1]["seed"] != other[1]["seed"]


def test_each_use_has_its_own_pool_and_the_control_look_has_the_searchs(tmp_path: Path) -> None:
    look = exam(tmp_path, questions(2))
    pools = tmp_path / "prepared" / "judge"
    for at, use in enumerate(("confirm", "report"), 1):
        rows = [row | {"id": f"{use}-{row['id']}"} for row in questions(2 + at)]
        (pools / f"{use}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    many = {
        use: judged(RIGHT, tmp_path, replace(look, use=use)).n for use in ("search", "control", "confirm", "report")
    }
    assert many == {"search": 2, "control": 2, "confirm": 3, "report": 4}


def test_the_blocks_of_a_comparison_share_out_the_pool() -> None:
    pool: list[dict[str, Any]] = [{"line": at} for at in range(22)]
    blocks = [share_of(pool, ComparisonBlock(number, 4)) for number in (1, 2, 3, 4)]
    assert sorted(question["line"] for block in blocks for question in block) == list(range(22)), "each question once"
    assert {len(block) for block in blocks} == {5, 6}
    assert blocks == [share_of(pool, ComparisonBlock(number, 4)) for number in (1, 2, 3, 4)]
    with pytest.raises(ValueError, match="22 questions for 23 blocks"):
        share_of(pool, ComparisonBlock(1, 23))


# Where there is no score


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("say({'failed': 'diverged: NaN'})", "^diverged: NaN$"),
        ("say(UP); hear(); import time; time.sleep(60)", "after 0 of 2 answers: did not answer within"),
        ("say(UP); hear(); sys.stdout.write('x' * 10**6); sys.stdout.flush()", "bytes where one line was due"),
        ("say(UP); say({'index': 2, 'completions': [text('1')] * 2, 'tokens': 2}); hear()", "not asked, prompt 2"),
    ],
)
def test_a_generator_that_fails_is_no_score_and_has_its_reason(body: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(Misbehaved, match=words):
        judged(f"UP = {{'ready': True}}\n{body}", tmp_path, exam(tmp_path, questions(2)), answer_seconds=2.0)


def test_questions_that_failed_refuse_the_score_with_their_number_and_the_first_reason(tmp_path: Path) -> None:
    body = RIGHT.replace(
        '    say({"index": index, "c',
        '    if int(prompt[-1]["content"][0]) < 3:\n        say({"index": index, "error": "HTTP 500\\x1b[31m"})\n'
        '        continue\n    say({"index": index, "c',
    )
    with pytest.raises(Misbehaved, match=r"^3 of 5 questions .*0\d.*: HTTP 500\[31m$"):
        judged(body, tmp_path, exam(tmp_path, questions(5)))
    kept = {one["question"]: one["sampled"] for one in answers(tmp_path)}
    assert kept["0" * 16] == {"error": "HTTP 500\x1b[31m"}
    assert kept["0" * 15 + "4"]["rewards"] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def reward(", "def rewards(", "has no function reward, and exports 0 subclasses of vf.Taskset"),
        ("return float(", "return float('nan') * float(", "the reward of question 0+. is nan, not a finite number"),
        ("return float(", "raise SystemExit(0); float(", "the reward of question 0+. failed .SystemExit: 0"),
        (
            "return",
            "import re; re.match('(a+)+b', 'a' * 60); ",
            r"did not come back within 2 s.*\[text\] reward_seconds",
        ),
    ],
)
def test_a_taskset_that_cannot_score_is_no_score(old: str, new: str, words: str, tmp_path: Path) -> None:
    look = exam(tmp_path, questions(2))
    taskset = tmp_path / "taskset.py"
    assert old in taskset.read_text()
    taskset.write_text(taskset.read_text().replace(old, new))
    with pytest.raises(Misbehaved, match=words):
        judged(RIGHT, tmp_path, look, reward_seconds=2)


# Before anything starts


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 0}, "samples = 16 with temperature = 0 .*set samples = 1"),
        ({"backend": "vllm", "vllm": "vllm-that-nobody-has"}, "no command 'vllm-that-nobody-has' is on PATH"),
        ({"backend": "openai"}, "endpoint.base_url is missing"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_remedy(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Text(**settings).check(Path())


# In the sandbox


def environment(folder: Path, settings: str = "", guards: str = "") -> Environment:
    """An environment whose folder and questions lie there."""
    own = folder / "environment"
    own.mkdir(exist_ok=True)
    exam(own, questions(4))
    (own / "prepared").rename(folder / "prepared")
    (own / "environment.toml").write_text(
        'metric = "pass@1"\ndirection = "maximize"\ntrainer = "command"\ntrain_cmd = "true"\nbudget_seconds = 9\n'
        f'judge = "text"\ndevice = "cpu"\n[text]\nquestions = 3\nsamples = 2\nmax_tokens = 8\n{settings}\n'
    )
    return environments.load(own).model_copy(update={"prepared": folder / "prepared"})


def judged_run(given: Environment, folder: Path, isolation: Isolation = SANDBOX) -> tuple[Score, TrialDir]:
    """The score of a run that left a model in out/."""
    given.check()
    place = TrialDir(folder / "trial")
    for needed in (place.workspace, place.out):
        needed.mkdir(parents=True, exist_ok=True)
    run = Run(
        dir=place.path, seed=1, seconds=1.0, status="finished", isolation="none",
        checkpoint=outputs.checkpoint(place.out), program=workspace.program_digest(place),
    )  # fmt: skip
    return judge_run("test/text", given, isolation, place, run, seed=8), place


def test_vllm_runs_in_the_sandbox_which_ends_what_it_leaves_behind(tmp_path: Path) -> None:
    before = set(engines())
    hollow_model(tmp_path / "trial" / "out" / "model")
    vllm = json.dumps(str(stand_in(tmp_path)))
    given = environment(tmp_path, f'backend = "vllm"\nvllm = {vllm}\nvllm_args = {{mode = "orphan"}}')
    score, place = judged_run(given, tmp_path)
    assert score.error is None and set(engines()) <= before
    assert score.units == (1.0,) * 3
    assert len((place.judged / "answers.jsonl").read_text().splitlines()) == 3


def engines() -> list[int]:
    """The engines of stand-ins that run."""
    processes = psutil.process_iter(["cmdline", "pid"])
    return [one.info["pid"] for one in processes if "import time; time.sleep(600)" in (one.info["cmdline"] or ())]


def test_an_endpoint_is_asked_from_in_the_sandbox_with_a_key_that_no_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHT_KEY", "a-secret-for-the-night")
    with FakeLLM(lambda asked: Reply(str(eval(asked.last)), usage=(9, 2)), key="a-secret-for-the-night") as server:
        settings = f'backend = "openai"\nendpoint = {{base_url = "{server.url}", key_variable = "NIGHT_KEY"}}'
        score, place = judged_run(environment(tmp_path, settings), tmp_path)
    assert score.error is None
    assert score.units == (1.0,) * 3
    assert {asked.body["model"] for asked in server.requests} == {str(place.out.absolute() / "model")}
    for file in place.path.rglob("*"):
        assert not file.is_file() or b"a-secret-for-the-night" not in file.read_bytes()


def test_the_generator_is_shown_neither_questions_nor_answers(tmp_path: Path) -> None:
    from tasks.evaluate import view

    given = environment(tmp_path)
    shown = view(given, TrialDir(tmp_path / "trial")).readable
    pools = tmp_path / "prepared" / "judge"
    assert not any(pools.is_relative_to(path) or path.is_relative_to(pools) for path in shown)


@pytest.mark.slow
@pytest.mark.timeout(600)  # importing transformers takes long where others have the core
def test_a_model_is_judged_in_the_sandbox_and_again_to_the_same_score(tmp_path: Path) -> None:
    tiny_model.save(tmp_path / "trial" / "out" / "model")
    given = environment(tmp_path, "batch = 4")
    score, place = judged_run(given, tmp_path)
    assert score.error is None
    assert score.n == 3
    kept = (place.judged / "answers.jsonl").read_text()
    again, _ = judged_run(given, tmp_path)
    assert again == score
    assert (place.judged / "answers.jsonl").read_text() == kept


@pytest.mark.slow
@pytest.mark.skipif("NIGHTSHIFT_VLLM" not in os.environ, reason="NIGHTSHIFT_VLLM names no `vllm` command to judge with")
@pytest.mark.timeout(1800)
def test_a_real_vllm_judges_a_model(tmp_path: Path) -> None:
    """Its CPU build."""
    vllm = shutil.which(os.environ["NIGHTSHIFT_VLLM"])
    assert vllm is not None, "NIGHTSHIFT_VLLM must be a command"
    tiny_model.save(tmp_path / "trial" / "out" / "model", head=32)
    arguments = 'vllm_args = {dtype = "float32", enforce_eager = true, gpu_memory_utilization = 0.2}'
    given = environment(tmp_path, f'backend = "vllm"\nvllm = {json.dumps(vllm)}\n{arguments}\nstart_seconds = 1500')
    score, place = judged_run(given, tmp_path)
    assert score.error is None, place.judge_log.read_text()[-5000:]
    assert score.n == 3
    assert 0 < score.also["tokens/mean"] <= 8
