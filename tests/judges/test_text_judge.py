"""The text judge: real pipes, a real taskset, and a score only where every question was answered."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment
from environments.judges import ComparisonBlock, Exam, Misbehaved
from environments.judges._generate import CannotGenerate, check_model
from environments.judges.text import GENERATOR, Text, share_of
from environments.plugins import Refused
from environments.recipe import Recipe
from environments.score import Score
from tasks.evaluate import judge_run, view
from tasks.sandbox import outputs
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.trial import Run
from tests.support import tiny_model
from tests.support.act_programs import PipeCandidate
from tests.support.fake_llm import Asked, FakeLLM, Reply
from tests.support.toy import SANDBOX, folder_of

TASKSET = """\
def reward(question, completion, answer):
    return float(completion == answer)
"""

GENERATOR_OF = """\
import json, sys

def say(told):
    sys.stdout.write(json.dumps(told) + "\\n")
    sys.stdout.flush()

def text(said, cut=False):
    return {"text": said, "truncated": cut}

def right(prompt):
    return str(eval(prompt[-1]["content"]))

def answer(prompt):
    return {"completions": [text(right(prompt)) for _ in range(request["samples"])], "tokens": 3}

def answer_all(answer=answer):
    say({"ready": True})
    for index, prompt in reversed(list(enumerate(request["prompts"]))):
        say({"index": index, **answer(prompt)})

request = json.loads(sys.stdin.readline())
"""
"""What a scripted generator begins with; a body follows it."""

RIGHT = "answer_all()"
"""Knows every answer, and gives the last one first."""

VLLM = """\
import os
from types import SimpleNamespace

assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"

class SamplingParams(SimpleNamespace):
    pass

class LLM:
    def __init__(self, model, tokenizer, load_format, generation_config, trust_remote_code, mode=""):
        assert (load_format, generation_config, trust_remote_code) == ("safetensors", "vllm", False)
        assert os.path.isfile(os.path.join(model, "config.json"))
        if mode == "fails":
            raise ValueError("Free memory on device (3.1/79.2 GiB) on startup is less than desired")

    def chat(self, prompts, sampling, use_tqdm):
        assert all(how.stop_token_ids == [2, 5] for how in sampling)
        outputs = []
        for prompt, how in zip(prompts, sampling, strict=True):
            said = str(eval(prompt[-1]["content"]))
            one = SimpleNamespace(text=said, token_ids=[0] * min(2, how.max_tokens), finish_reason="stop")
            outputs.append(SimpleNamespace(outputs=[one] * how.n))
        return outputs
"""
"""The little of vLLM that the generator calls."""


def questions(many: int) -> list[dict[str, str]]:
    """Sums."""
    return [{"id": f"{at:016x}", "question": f"{at}+1", "answer": str(at + 1)} for at in range(many)]


def exam(folder: Path, rows: Iterable[dict[str, Any]], seed: int = 7, **more: Any) -> Exam:
    """A look at these questions, with the taskset beside them."""
    (folder / "taskset.py").write_text(TASKSET)
    pool = folder / "prepared" / "judge" / "search.jsonl"
    pool.parent.mkdir(parents=True, exist_ok=True)
    (folder / "prepared" / "data").mkdir(exist_ok=True)
    pool.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Exam(seed, prepared=folder / "prepared", folder=folder, **more)


def stand_in(folder: Path) -> Path:
    """A command `vllm`, beside a Python that has the module above."""
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv").glob("lib/python3*/site-packages")
    (packages / "vllm.py").write_text(VLLM)
    (command := folder / "venv/bin/vllm").touch(0o755)
    return command


def hollow_model(folder: Path) -> Path:
    """What passes for a model where nobody loads it."""
    own = {"config.json": '{"eos_token_id": 2}', "generation_config.json": '{"eos_token_id": [2, 5], "top_k": 1}'}
    return folder_of(folder, {**own, "tokenizer.json": "{}", "model.safetensors": ""})


def generate(
    backend: str, model: object, asked: dict[str, Any], python: str | Path = sys.executable, **how: Any
) -> tuple[list[dict[str, Any]], str]:
    """What the generator says to a request, and what it prints besides."""
    line = {"batch": 64} | how | asked
    done = subprocess.run(
        [str(python), "-I", "-B", str(GENERATOR), backend, str(model), "cpu"],
        input=json.dumps(line) + "\n", capture_output=True, text=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def request(*prompts: str, **more: Any) -> dict[str, Any]:
    asked = [[{"role": "user", "content": prompt}] for prompt in prompts]
    settings = {"samples": 2, "temperature": 1.0, "max_tokens": 8, "seed": 1}
    return {"prompts": asked, **settings, **more}


def judged(body: str, folder: Path, look: Exam, prelude: str = GENERATOR_OF, **settings: Any) -> Score:
    """The score that a scripted generator gets."""
    (folder / "generator.py").write_text(f"{prelude}\n{body}")
    judge = Text(**{"questions": 0, "samples": 2, "max_tokens": 8, "start_seconds": 30, **settings})
    with PipeCandidate([sys.executable, "-IS", "generator.py"], folder) as candidate:
        return judge.score(candidate, look)


def answers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]


# What is measured


def test_a_unit_is_the_mean_reward_of_a_questions_samples_and_the_rest_stands_beside(tmp_path: Path) -> None:
    half = """
def half(prompt):
    return {"completions": [text(right(prompt) if at % 2 else "none", cut=not at) for at in range(4)], "tokens": 20}
answer_all(half)
"""
    score = judged(half, tmp_path, exam(tmp_path, questions(5)), samples=4)
    assert score.units == (0.5,) * 5 and score.value == 0.5
    assert score.also == {"tokens/mean": 5.0, "truncated/share": 0.25}
    first = answers(tmp_path)[0]
    assert first["expected"] == str(eval(first["text"]))
    assert sorted(first["sampled"]["completions"]) == sorted([first["expected"], "none"] * 2)
    assert sorted(first["sampled"]["rewards"]) == [0.0, 0.0, 1.0, 1.0]


def test_the_seed_draws_the_questions_and_their_order_and_the_samples(tmp_path: Path) -> None:
    def asked(seed: int) -> tuple[list[str], dict[str, Any]]:
        noting = f"open('log', 'w').write(json.dumps(request))\n{RIGHT}"
        judged(noting, tmp_path, exam(tmp_path, questions(40), seed), questions=10)
        return [kept["question"] for kept in answers(tmp_path)], json.loads((tmp_path / "log").read_text())

    assert asked(1) == asked(1)
    first, other = asked(1), asked(2)
    assert len(set(first[0])) == 10 and set(first[0]) != set(other[0]) and first[0] != sorted(first[0])
    assert first[1]["seed"] != other[1]["seed"]


def test_each_use_has_its_own_pool(tmp_path: Path) -> None:
    look = exam(tmp_path, questions(2))
    pools = tmp_path / "prepared" / "judge"
    for at, use in enumerate(("confirm", "report"), 1):
        rows = [row | {"id": f"{use}-{row['id']}"} for row in questions(2 + at)]
        (pools / f"{use}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    many = {use: judged(RIGHT, tmp_path, replace(look, use=use)).n for use in ("search", "confirm", "report")}
    assert many == {"search": 2, "confirm": 3, "report": 4}


def test_the_blocks_of_a_comparison_share_out_the_pool() -> None:
    pool: list[dict[str, Any]] = [{"line": at} for at in range(22)]
    blocks = [share_of(pool, ComparisonBlock(number, 4)) for number in (1, 2, 3, 4)]
    assert sorted(question["line"] for block in blocks for question in block) == list(range(22)), "each question once"
    assert {len(block) for block in blocks} == {5, 6}
    assert blocks == [share_of(pool, ComparisonBlock(number, 4)) for number in (1, 2, 3, 4)]


def test_a_generator_may_load_its_libraries_before_it_reads_what_no_pipe_holds(tmp_path: Path) -> None:
    look = exam(tmp_path, (row | {"question": row["question"] + " " * 9000} for row in questions(20)))
    loading = f"import time\ntime.sleep(3)\n{GENERATOR_OF}"
    assert judged(RIGHT, tmp_path, look, prelude=loading, answer_seconds=2.0).value == 1.0


# Where there is no score


PARTLY = r"""
def partly(prompt):
    return {"error": "HTTP 500\x1b[31m"} if prompt[-1]["content"][0] == "0" else answer(prompt)
answer_all(partly)
"""


@pytest.mark.parametrize(
    ("body", "change", "words"),
    [
        ("say({'failed': 'diverged: NaN'})", (), r"^diverged: NaN \(before it was ready\)$"),
        ("say(UP); import time; time.sleep(60)", (), r"did not answer within 2 s \(after 0 of 2 answers\)"),
        ("say(UP); sys.stdout.write('x' * 10**6); sys.stdout.flush()", (), "bytes where one line was due"),
        ("say(UP); say({'index': 2, **answer(request['prompts'][0])}); sys.stdin.read()", (), "not asked, prompt 2"),
        (PARTLY, (), r"^1 of 2 questions .*0\d.*: HTTP 500\x1b\[31m$"),
        (RIGHT, ("def reward(", "def rewards("), "taskset.py cannot be used .AttributeError: .* no attribute 'reward'"),
        (RIGHT, ("return ", "return float('nan') * "), "the reward of question 0+. is nan, not a finite number"),
        (RIGHT, ("return ", "raise SystemExit(0); "), "the reward of question 0+. failed .SystemExit: 0"),
        (RIGHT, ("return ", "import re; re.match('(a+)+b', 'a' * 60); "), r"within 2 s.*\[text\] reward_seconds"),
    ],
)
def test_a_generator_that_fails_or_a_taskset_that_cannot_score_is_no_score_and_has_its_reason(
    body: str, change: tuple[str, str] | tuple[()], words: str, tmp_path: Path
) -> None:
    look, taskset = exam(tmp_path, questions(2)), tmp_path / "taskset.py"
    if change:
        taskset.write_text(taskset.read_text().replace(*change))
    with pytest.raises(Misbehaved, match=words):
        judged(f"UP = {{'ready': True}}\n{body}", tmp_path, look, answer_seconds=2.0, reward_seconds=2)
    if body == PARTLY:
        assert sorted(bool(row["sampled"]["error"]) for row in answers(tmp_path)) == [False, True]


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


def environment(folder: Path, settings: str = "", readable: tuple[Path, ...] = ()) -> Environment:
    """An environment whose folder and questions lie there."""
    own = folder / "environment"
    own.mkdir(exist_ok=True)
    exam(own, questions(4))
    (own / "prepared").rename(folder / "prepared")
    (own / "environment.toml").write_text(
        'metric = "pass@1"\ndirection = "maximize"\ntrainer = "command"\ntrain_cmd = "true"\nbudget_seconds = 9\n'
        f'judge = "text"\ndevice = "cpu"\n[text]\nquestions = 3\nsamples = 2\nmax_tokens = 8\n{settings}\n'
    )
    further = {
        "prepare": Recipe(program="taskset.py"),
        "prepared": folder / "prepared",
        "readable": tuple(map(str, readable)),
    }
    return environments.load(own).model_copy(update=further)


def test_a_text_judge_without_a_recipe_for_its_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"\[text\] asks questions that a recipe makes"):
        environment(tmp_path).model_copy(update={"prepare": None}).check()


def judged_run(given: Environment, folder: Path) -> tuple[Score, TrialDir]:
    """The score of a run that left a model in out/."""
    given.check()
    place = TrialDir(folder / "trial")
    for needed in (place.workspace, place.out):
        needed.mkdir(parents=True, exist_ok=True)
    run = Run(
        dir=place.path, seed=1, seconds=1.0, status="finished", isolation="none",
        checkpoint=outputs.checkpoint(place.out), program=workspace.program_digest(place),
    )  # fmt: skip
    return judge_run("test/text", given, SANDBOX, place, run, seed=8), place


def test_vllm_runs_in_the_sandbox_which_shows_it_neither_questions_nor_answers(tmp_path: Path) -> None:
    model, vllm = hollow_model(tmp_path / "trial/out/model"), stand_in(tmp_path)
    given = environment(tmp_path, f'backend = "vllm"\nvllm = {json.dumps(str(vllm))}', (vllm.parents[1],))
    score, place = judged_run(given, tmp_path)
    assert score.error is None and score.units == (1.0,) * 3
    assert len(answers(place.judged)) == 3
    pools = tmp_path / "prepared/judge"
    shown = view(given, place).readable
    assert not any(pools.is_relative_to(path) or path.is_relative_to(pools) for path in shown)
    (told,) = generate("vllm", model, request("1"), python=vllm.with_name("python"), vllm_args={"mode": "fails"})[0]
    assert told["failed"].startswith("vllm does not generate (ValueError: Free memory on device")


def test_an_endpoint_is_asked_from_in_the_sandbox_once_a_question_with_a_key_that_no_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHT_KEY", "a-secret-for-the-night")
    with FakeLLM(lambda asked: choices(str(eval(asked.last)), "none"), key="a-secret-for-the-night") as server:
        settings = f'backend = "openai"\nendpoint = {{base_url = "{server.url}", key_variable = "NIGHT_KEY"}}'
        score, place = judged_run(environment(tmp_path, settings), tmp_path)
    assert score.error is None
    assert score.units == (0.5,) * 3 and score.also == {"tokens/mean": 2.0, "truncated/share": 0.0}
    settled = {"model": str(place.out.absolute() / "model"), "n": 2, "temperature": 1.0, "top_p": 1.0, "max_tokens": 8}
    assert [asked.body | settled for asked in server.requests] == [asked.body for asked in server.requests]
    assert len({asked.body["seed"] for asked in server.requests}) == 3, "one request a question"
    for file in place.path.rglob("*"):
        assert not file.is_file() or b"a-secret-for-the-night" not in file.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif("NIGHTSHIFT_VLLM" not in os.environ, reason="NIGHTSHIFT_VLLM names no `vllm` command to judge with")
@pytest.mark.timeout(1800)
def test_a_real_vllm_judges_a_model(tmp_path: Path) -> None:
    """Its CPU build."""
    vllm = shutil.which(os.environ["NIGHTSHIFT_VLLM"])
    assert vllm is not None, "NIGHTSHIFT_VLLM must be a command"
    tiny_model.save(tmp_path / "trial" / "out" / "model")
    arguments = 'vllm_args = {dtype = "float32", enforce_eager = true, gpu_memory_utilization = 0.2}'
    settings = f'backend = "vllm"\nvllm = {json.dumps(vllm)}\n{arguments}\nstart_seconds = 1500'
    given = environment(tmp_path, settings, (Path(vllm).resolve().parents[1],))
    score, place = judged_run(given, tmp_path)
    assert score.error is None, place.judge_log.read_text()[-5000:]
    assert score.n == 3
    assert 0 < score.also["tokens/mean"] <= 8


# The generator as a program: spoken to over its pipes, with real servers and processes behind it.


def choices(*texts: str) -> Reply:
    """An answer with several choices."""
    made = [{"message": {"content": text}, "finish_reason": "stop"} for text in texts]
    return Reply(body=json.dumps({"choices": made, "usage": {"completion_tokens": 4}}))


def asked_of(server: FakeLLM, asked: dict[str, Any], **how: Any) -> list[dict[str, Any]]:
    told, noise = generate("openai", "night", asked, base_url=server.url, **how)
    assert told[0] == {"ready": True}, noise
    return told[1:]


# An endpoint


def test_a_server_that_takes_no_notice_of_n_is_asked_until_there_are_enough() -> None:
    with FakeLLM([Reply("1", finish="length"), Reply("2", usage=(9, 5)), Reply("3", usage=(9, 5))]) as server:
        (told,) = asked_of(server, request("a", samples=3))
    assert [one["text"] for one in told["completions"]] == ["1", "2", "3"]
    assert [one["truncated"] for one in told["completions"]] == [True, False, False]
    assert told["tokens"] == 20 + 5 + 5
    assert [asked.body["n"] for asked in server.requests] == [3, 2, 1]


def test_a_question_that_goes_on_failing_is_an_error_and_the_others_are_answered() -> None:
    gone = Reply(status=502, headers={"retry-after-ms": "1"})
    bad = {"gone": gone, "long": Reply("context is too long", status=400), "page": Reply(body="<html>")}
    passing = {"busy": Reply(status=429, headers={"Retry-After": "0"})}

    def script(asked: Asked) -> Reply:
        return bad.get(asked.last) or passing.pop(asked.last, choices("1", "2"))

    with FakeLLM(script) as server:
        told = asked_of(server, request(*bad, "busy", "good"))
    replies = {reply["index"]: reply for reply in told}
    assert "InternalServerError: " in replies[0]["error"] and "context is too long" in replies[1]["error"]
    assert "error" in replies[2]
    assert [len(replies[at]["completions"]) for at in (3, 4)] == [2, 2]
    assert sum(asked.last == "long" for asked in server.requests) == 1, "it is refused for good"


# What is no model


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("pytorch_model.bin", "", "pytorch_model.bin in model: weights are read from safetensors only"),
        ("config.json", '{"auto_map": {"AutoModel": "a.Mine"}}', "config.json in model: it is code or names some"),
        ("adapter_config.json", "{}", "merge it into its base"),
    ],
)
def test_a_model_that_could_run_code_is_refused(name: str, text: str, words: str, tmp_path: Path) -> None:
    model = hollow_model(tmp_path / "model")
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text(text)
    with pytest.raises(CannotGenerate, match=words):
        check_model(model, model)


# A model in its own process


@pytest.mark.slow
@pytest.mark.timeout(600)  # importing transformers takes long where others have the core
def test_a_model_is_sampled_as_its_seed_says_and_each_prompt_for_itself(tmp_path: Path) -> None:
    model = tiny_model.save(tmp_path / "model")
    ask = request("1+2", "3", "12+3+4", samples=6)

    def replies(**more: Any) -> list[dict[str, Any]]:
        told, noise = generate("transformers", model, ask | more)
        assert told[0] == {"ready": True}, noise
        return told[1:]

    first = replies()
    assert first == replies() and first != replies(seed=2)
    assert sorted(reply["index"] for reply in first) == [0, 1, 2]
    assert all(len({one["text"] for one in reply["completions"]}) > 1 for reply in first)
    assert all(len(reply["completions"]) == 6 and 0 < reply["tokens"] <= 6 * 8 for reply in first)
    greedy = replies(temperature=0.0)
    assert all(len({one["text"] for one in reply["completions"]}) == 1 for reply in greedy)
    alone, _ = generate("transformers", model, ask | {"temperature": 0.0}, batch=1)
    assert sorted(alone[1:], key=str) == sorted(greedy, key=str), "padding and batches change nothing of it"


def with_nan(folder: Path) -> None:
    from safetensors import torch

    state = torch.load_file(folder / "model.safetensors")
    state["model.norm.weight"][0] = float("nan")
    torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (with_nan, "diverged: the model's weights hold NaN"),
        (lambda folder: (folder / "chat_template.jinja").unlink(), "has no chat template"),
        (lambda folder: None, "prompt and max_tokens make up to 1005 tokens, the model takes 64"),
    ],
)
def test_a_broken_model_is_refused_with_the_reason(harm: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    folder = tiny_model.save(tmp_path / "model")
    harm(folder)
    told, _ = generate("transformers", folder, request("1+2", max_tokens=1000))
    assert words in told[-1]["failed"]
