"""The generator as a program: spoken to over its pipes, with real servers and processes behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from environments.judges._generate import CannotGenerate, check_model
from tests.support import tiny_model
from tests.support.fake_llm import Asked, FakeLLM, Reply, broken, rate_limited, truncated
from tests.support.text_exam import generate, hollow_model, request, stand_in


def choices(*texts: str, tokens: int = 4) -> Reply:
    """An answer with several choices."""
    made = [{"message": {"content": text}, "finish_reason": "stop"} for text in texts]
    return Reply(body=json.dumps({"choices": made, "usage": {"completion_tokens": tokens}}))


def asked_of(server: FakeLLM, asked: dict[str, Any], **how: Any) -> list[dict[str, Any]]:
    told, noise = generate("openai", "night", asked, base_url=server.url, **how)
    assert told[0] == {"ready": True}, noise
    return told[1:]


# An endpoint


def test_every_prompt_is_completed_by_one_request_with_the_judges_sampling() -> None:
    with FakeLLM(lambda asked: choices(f"{asked.last}!", f"{asked.last}?"), key="secret-key") as server:
        told = asked_of(server, request("a", "b"), key="secret-key")
    assert sorted(told, key=lambda reply: reply["index"]) == [
        {"index": index, "completions": [{"text": f"{name}{sign}", "truncated": False} for sign in "!?"], "tokens": 4}
        for index, name in enumerate("ab")
    ]
    body = server.requests[0].body
    assert {key: body[key] for key in ("model", "n", "temperature", "top_p", "max_tokens")} == {
        "model": "night", "n": 2, "temperature": 1.0, "top_p": 1.0, "max_tokens": 8,
    }  # fmt: skip
    assert len({asked.body["seed"] for asked in server.requests}) == 2


def test_a_server_that_takes_no_notice_of_n_is_asked_until_there_are_enough() -> None:
    with FakeLLM([truncated("1"), Reply("2", usage=(9, 5)), Reply("3", usage=(9, 5))]) as server:
        (told,) = asked_of(server, request("a", samples=3))
    assert [one["text"] for one in told["completions"]] == ["1", "2", "3"]
    assert [one["truncated"] for one in told["completions"]] == [True, False, False]
    assert told["tokens"] == 20 + 5 + 5
    assert [asked.body["n"] for asked in server.requests] == [3, 2, 1]


def test_a_question_that_goes_on_failing_is_an_error_and_the_others_are_answered() -> None:
    bad = {"gone": broken(502), "long": Reply("context is too long", status=400), "page": Reply(body="<html>")}
    passing = {"busy": rate_limited()}

    def script(asked: Asked) -> Reply:
        return bad.get(asked.last) or passing.pop(asked.last, choices("1", "2"))

    with FakeLLM(script) as server:
        told = asked_of(server, request(*bad, "busy", "good"), retries=1)
    replies = {reply["index"]: reply for reply in told}
    assert "InternalServerError: " in replies[0]["error"] and "context is too long" in replies[1]["error"]
    assert "error" in replies[2]
    assert [len(replies[at]["completions"]) for at in (3, 4)] == [2, 2]
    assert sum(asked.last == "long" for asked in server.requests) == 1, "it is refused for good"


# vLLM


def test_vllm_is_asked_in_its_own_python(tmp_path: Path) -> None:
    model, python = hollow_model(tmp_path / "model"), stand_in(tmp_path).with_name("python")
    told, noise = generate("vllm", model, request("1+2", "3+4", "5+6"), python=python, concurrency=2)
    assert told[0] == {"ready": True}, noise
    assert [reply["completions"][1]["text"] for reply in told[1:4]] == ["3", "7", "11"]
    assert [(reply["index"], reply["tokens"]) for reply in told[1:4]] == [(0, 4), (1, 4), (2, 4)]
    assert len(told) == 4
    (told,) = generate("vllm", model, request("1"), python=python, vllm_args={"mode": "fails"})[0]
    assert told["failed"].startswith("did not start: vLLM: ValueError: Free memory on device")


# What is no model


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("pytorch_model.bin", "", "pytorch_model.bin in model: weights are read from safetensors only"),
        (
            "config.json",
            '{"auto_map": {"AutoModel": "modeling.Mine"}}',
            "config.json in model: it is code or names some",
        ),
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


@pytest.mark.slow
@pytest.mark.timeout(600)  # importing transformers takes long where others have the core
def test_a_chat_template_beside_the_model_is_not_used_where_another_is_given(tmp_path: Path) -> None:
    base = tiny_model.save(tmp_path / "base")
    model = tiny_model.save(tmp_path / "model")
    ask = request("1+2", "3", temperature=0.0, samples=1)
    before, _ = generate("transformers", model, ask, tokenizer=str(base))
    (model / "chat_template.jinja").write_text("{{ raise_exception('asked') }}")
    after, _ = generate("transformers", model, ask, tokenizer=str(base))
    alone, _ = generate("transformers", model, ask)
    assert before == after
    assert "asked" in alone[-1]["failed"]


def with_nan(folder: Path) -> None:
    state = load(folder)
    state["model.norm.weight"][0] = float("nan")
    keep(state, folder)


def load(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def keep(state: dict[str, Any], folder: Path) -> None:
    from safetensors.torch import save_file

    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


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
