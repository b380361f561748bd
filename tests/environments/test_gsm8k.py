"""gsm8k and reverse_text: recipes on small local files, tasksets on answers, files for prime-rl."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import environments
from environments import Environment
from environments.judges._taskset import Taskset
from prime_rl_parts.run import Settings, as_tables, at
from tasks.importing._original import flat

NAMES = ("gsm8k", "reverse_text")
HERE: dict[str, Any] = {"text.backend": "openai", "text.endpoint.base_url": "http://127.0.0.1:1/v1", "readable": []}
"""In place of what the environments say of a machine with two GPUs."""


def loaded(name: str, **overrides: Any) -> Environment:
    return environments.named(name, HERE | overrides)


@cache
def module(name: str, file: str) -> ModuleType:
    path = environments.find(name) / file
    spec = importlib.util.spec_from_file_location(f"{name}_{path.stem}", path)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def model(folder: Path, **config: object) -> str:
    """A folder that looks like a model of the hub's cache: its weights are a link."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **config}))
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder.parent / "blob").write_bytes(b"weights")
    (folder / "model.safetensors").symlink_to(folder.parent / "blob")
    (folder / "pytorch_model.bin").write_bytes(b"code")
    return str(folder)


def lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def words(number: int, answer: str | None = None) -> dict[str, str]:
    """A row as GSM8K has it."""
    return {"question": f"How many are {number} hens?", "answer": f"They are <<{number}>>.\n#### {answer or number}"}


def prepared(name: str, folder: Path, settings: dict[str, object], **variables: str) -> tuple[Path, str]:
    """Run a recipe as the engine does: where it wrote, and what it said when it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings))
    recipe, texts = loaded(name).prepare, folder.with_name(f"{folder.name}-texts")
    assert recipe is not None
    texts.mkdir()
    for path, called in recipe.texts(environments.find(name)):
        shutil.copyfile(path, texts / called)
    done = subprocess.run(
        [sys.executable, "prepare.py", str(folder)], cwd=texts, text=True, capture_output=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(folder / "hub"), **variables},
    )  # fmt: skip
    assert (done.returncode == 0) == (not done.stderr), done.stderr
    return folder, done.stderr


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sets(made: Path) -> dict[str, list[dict[str, str]]]:
    """What a recipe has made: training, the curve, the judge's three, each question with a hash in one of them alone."""
    found = {name: rows(made / "judge" / f"{name}.jsonl") for name in ("search", "confirm", "report")}
    found |= {name: rows(made / "data" / f"{name}.jsonl") for name in ("train", "curve")}
    every = [row["id"] for part in found.values() for row in part]
    assert len(every) == len(set(every)) and all(len(one) == 16 for one in every)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_for_prime_rl_fits_its_trainer_and_says_nothing_twice(name: str) -> None:
    environment = loaded(name)
    environment.check()
    assert environment.gpus == 2 and environment.editable == ("train.toml",)
    assert environment.grace_seconds > Settings("").quit_deadline, "or it is killed while prime-rl ends"
    said = tomllib.loads((environment.folder / environments.FILE).read_text())
    place = said["fixed"]["prime_rl"]
    assert said["readable"] == [place] and said["text"]["vllm"].startswith(f"{place}/")
    train = tomllib.loads((environment.folder / "train.toml").read_text())
    settings, params = Settings.split(environment.defaults)
    assert settings.prime_rl and "learning_rate" in params
    for param, value in params.items():
        [key] = [key for key, _ in flat(as_tables({param: value}))]
        assert at(train, key) is None, "an edit of such a key would be written over without a word"


def test_gsm8k_is_prepared_from_local_files(tmp_path: Path) -> None:
    lines(tmp_path / "data" / "test.jsonl", [words(number, "-1,234") for number in range(20)])
    twice = {**words(3), "question": "  how many ARE 3\nhens? "}
    lines(tmp_path / "data" / "train.jsonl", [twice, *(words(number) for number in range(100, 130)), words(101)])
    settings: dict[str, object] = {"dataset": str(tmp_path / "data"), "search": 6, "confirm": 4}
    made, error = prepared("gsm8k", tmp_path / "made", settings | {"model": model(tmp_path / "hub" / "qwen")})
    found = sets(made)
    assert error == "" and {name: len(part) for name, part in found.items()} == {
        "search": 6, "confirm": 4, "report": 10, "train": 27, "curve": 3,
    }  # fmt: skip
    one = found["search"][0]
    assert one["answer"] == "-1234" and one.keys() == {"id", "question", "answer"}
    assert one["id"] == hashlib.sha256(one["question"].casefold().encode()).hexdigest()[:16]
    assert "3 hens" not in " ".join(row["question"] for row in found["train"] if " 3 " in row["question"])
    base = {path.name: path for path in (made / "data" / "base").iterdir()}
    assert base.keys() == {"config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors"}
    assert base["model.safetensors"].read_bytes() == b"weights" and not base["model.safetensors"].is_symlink()


def test_texts_to_reverse_are_made_from_a_seed(tmp_path: Path) -> None:
    sizes: dict[str, object] = {"train": 40, "search": 6, "confirm": 5, "report": 4}
    settings = {**sizes, "model": model(tmp_path / "m")}
    one, error = prepared("reverse_text", tmp_path / "one", settings)
    found = sets(one)
    assert error == "" and {name: len(part) for name, part in found.items()} == sizes | {"train": 36, "curve": 4}
    assert all(row["answer"] == row["question"][::-1] for part in found.values() for row in part)
    again, other = (
        prepared("reverse_text", tmp_path / f"seed-{seed}", {**settings, "seed": seed})[0] for seed in (0, 1)
    )
    assert sets(again) == found != sets(other)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"serach": 1}, "prepare.settings.serach: unknown key. Available: confirm, curve, dataset, dataset_revision,"),
        ({"dataset": "/nowhere"}, "prepare.settings.dataset = '/nowhere' is no folder: give the absolute path of one"),
        ({"search": 19}, "20 questions are too few for 19 to search, 4 to confirm and the rest to report: set"),
        ({"model": "/tmp"}, "model '/tmp' cannot be the base: no config.json"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be_followed_says_why(tmp_path: Path, settings: dict[str, object], why: str) -> None:
    for part in ("test", "train"):
        lines(tmp_path / "data" / f"{part}.jsonl", [words(number) for number in range(20)])
    said = {"dataset": str(tmp_path / "data"), "search": 6, "confirm": 4, **settings}
    (tmp_path / "settings.json").write_text(json.dumps(said))
    recipe = module("gsm8k", "prepare.py")
    with pytest.raises(recipe.CannotPrepare) as refused:
        recipe.main(tmp_path)
    assert str(refused.value).startswith(why)


def test_without_a_network_what_is_missing_is_named_with_the_remedy(tmp_path: Path) -> None:
    _, error = prepared("reverse_text", tmp_path, {"train": 9, "search": 2, "confirm": 2, "report": 2})
    name = "PrimeIntellect/Qwen3-0.6B-Reverse-Text-SFT"
    assert error.startswith(f"reverse_text cannot be prepared: model {name!r} at revision c97a9108")
    assert "could not be fetched (" in error and "run `hf download Prime" in error
    assert "or set prepare.settings.model to a folder with the same files" in error


RIGHT = [
    ("18.", "18"), ("18.0", "18"), ("1,234", "1234"), (r"\$18", "18"), ("x = 7", "7"), ("-5", "-5"),
    (r"\frac{36}{2}", "18"), (r"90^\circ", "90"), (r"12 \text{ cm}^2", "12"),
]  # fmt: skip
"""What is boxed, and an answer that it is."""
WRONG = [
    ("", "18"), ("-18", "18"), ("18 or 19", "18"), (r"\frac{1}{0}", "1"), ("9" * 5000, "9"), ("9^{9^{9^{9}}}", "3"),
    ("(" * 499, "3"),
]  # fmt: skip


def test_answers_are_compared_by_their_value() -> None:
    taskset = module("gsm8k", "taskset.py")
    assert [pair for pair in RIGHT if not taskset.reward("", f"So \\boxed{{{pair[0]}}}.", pair[1])] == []
    assert [pair for pair in WRONG if taskset.reward("", f"So \\boxed{{{pair[0]}}}.", pair[1])] == []
    wrong = (r"\boxed{18}, or is it \boxed{3}", "18", r"\boxed{18} \boxed{")
    last = [taskset.reward("", reply, "18") for reply in (r"first \boxed{3}, then \boxed {18}", *wrong)]
    assert last == [1.0, 0.0, 0.0, 0.0], "the last box of a reply is the answer"


@pytest.mark.parametrize(
    ("name", "reply", "answer"),
    [("gsm8k", r"\boxed{18}", "18"), ("reverse_text", "<reversed_text>ba</reversed_text>", "ba")],
)
def test_the_judge_scores_with_each_taskset(tmp_path: Path, name: str, reply: str, answer: str) -> None:
    pool = tmp_path / "search.jsonl"
    lines(pool, [{"id": f"{at:016x}", "question": f"Q{at}", "answer": answer} for at in range(2)])
    file, ids = environments.find(name) / "taskset.py", [f"{at:016x}" for at in range(2)]
    with Taskset(file, pool, ids, 30, time.monotonic() + 600) as taskset:
        ((system, user),) = taskset.prompts([1])
        assert taskset.rewards([(0, reply), (1, reply), (1, "no idea")]) == [1.0, 1.0, 0.0]
    assert [system, user] == module(name, "taskset.py").prompt("Q1"), "training asks in the same words"


def test_training_asks_each_question_once_from_within_its_process() -> None:
    """Only what it says to the endpoint: verifiers itself is not run."""
    asked: list[tuple[str, str | None, dict[str, Any]]] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers["Authorization"], body))
            self.send_response(400)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"full")

        def log_message(self, *_: object) -> None:
            pass

    ask_once = importlib.import_module("prime_rl_parts.harnesses.ask_once")  # imports verifiers, some seconds
    vf = ask_once.vf
    data = vf.TaskData(prompt="Q", system_prompt="S")
    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        chat = ask_once.AskOnce(vf.HarnessConfig(id="ask_once"))
        url = f"http://127.0.0.1:{server.server_port}/v1"
        ended = asyncio.run(chat.launch(SimpleNamespace(model="m"), None, None, url, "secret", {}, data))
        server.shutdown()
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    assert asked == [("/v1/chat/completions", "Bearer secret", {"model": "m", "messages": messages})]
    assert (ended.exit_code, ended.stderr) == (1, "full")
