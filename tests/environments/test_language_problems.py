"""The language problems: what their recipes make, which answers their tasksets call right, and files for prime-rl."""

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
import time
import tomllib
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import environments
from environments.judges._taskset import Taskset
from environments.plugins import Refused
from tasks.importing._original import flat
from tasks.store.ledger import freeze
from tasks.trainers import prime_rl
from tasks.trainers.prime_rl import Settings, as_tables
from tests.support.web import Handler, serving

NAMES = ("gsm8k", "reverse_text")
HERE: dict[str, Any] = {"text.backend": "openai", "text.endpoint.base_url": "http://127.0.0.1:1/v1", "readable": []}
"""In place of what the environments say of a machine with two GPUs."""


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


def prepared(name: str, folder: Path, settings: dict[str, object]) -> str:
    """Run a recipe as the engine does: what it said when it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe, texts = environments.named(name, HERE).prepare, folder.with_name(f"{folder.name}-texts")
    assert recipe is not None
    (folder / "settings.json").write_text(json.dumps(recipe.settings | settings))
    texts.mkdir()
    for path, called in recipe.texts(environments.find(name)):
        shutil.copyfile(path, texts / called)
    done = subprocess.run(
        [sys.executable, "prepare.py", str(folder)], cwd=texts, text=True, capture_output=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(folder / "hub")},
    )  # fmt: skip
    assert (done.returncode == 0) == (not done.stderr), done.stderr
    return done.stderr


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
    environment = environments.named(name, HERE)
    environment.check()
    assert environment.gpus == 2 and environment.editable == ("train.toml",)
    assert environment.grace_seconds > Settings("").quit_deadline, "or it is killed while prime-rl ends"
    said = tomllib.loads((environment.folder / environments.FILE).read_text())
    place = said["fixed"]["prime_rl"]
    assert said["readable"] == [place] and said["text"]["vllm"].startswith(f"{place}/")
    train = tomllib.loads((environment.folder / "train.toml").read_text())
    own = {field.name for field in fields(Settings)}
    params = {param: value for param, value in environment.defaults.items() if param not in own}
    assert "learning_rate" in params
    for param, value in params.items():
        [key] = [key for key, _ in flat(as_tables({param: value}))]
        assert key not in dict(flat(train)), "an edit of such a key would be written over without a word"


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_makes_its_questions_from_local_files_and_a_seed(name: str, tmp_path: Path) -> None:
    lines(tmp_path / "data" / "test.jsonl", [words(number, "-1,234") for number in range(20)])
    twice = {**words(3), "question": "  how many ARE 3\nhens? "}
    lines(tmp_path / "data" / "train.jsonl", [twice, *(words(number) for number in range(100, 130)), words(101)])
    gsm8k: dict[str, object] = {"dataset": str(tmp_path / "data"), "search": 6, "confirm": 4}
    settings = gsm8k if name == "gsm8k" else {"train": 30, "search": 6, "confirm": 4, "report": 10}
    settings |= {"model": model(tmp_path / "hub" / "qwen")}
    assert prepared(name, tmp_path / "made", settings) == ""
    found = sets(tmp_path / "made")
    sizes = {"search": 6, "confirm": 4, "report": 10, "train": 27, "curve": 3}
    assert {part: len(rows) for part, rows in found.items()} == sizes
    one = found["search"][0]
    assert one["answer"] == ("-1234" if name == "gsm8k" else one["question"][::-1])
    assert one["id"] == hashlib.sha256(one["question"].casefold().encode()).hexdigest()[:16] or name != "gsm8k"
    assert "3 hens" not in " ".join(row["question"] for row in found["train"] if " 3 " in row["question"])
    base = {path.name: path for path in (tmp_path / "made" / "data" / "base").iterdir()}
    assert base.keys() == {"config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors"}
    assert base["model.safetensors"].read_bytes() == b"weights" and not base["model.safetensors"].is_symlink()
    if name == "reverse_text":
        again, other = tmp_path / "again", tmp_path / "other"
        assert prepared(name, again, settings) == prepared(name, other, settings | {"seed": 1}) == ""
        assert sets(again) == found != sets(other)
        del settings["model"]
        error = prepared(name, tmp_path / "none", settings)
        assert "PrimeIntellect/Qwen3-0.6B-Reverse-Text-SFT" in error and "run `hf download Prime" in error


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"dataset": "/nowhere"}, "dataset '/nowhere' has no main/test-00000-of-00001.parquet: set prepare"),
        ({"search": 19}, "20 questions are too few for 19 to search, 4 to confirm and the rest to report: set"),
        ({"model": "/tmp"}, "model '/tmp' has no config.json"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be_followed_says_why(tmp_path: Path, settings: dict[str, object], why: str) -> None:
    for part in ("test", "train"):
        lines(tmp_path / "data" / f"{part}.jsonl", [words(number) for number in range(20)])
    recipe, stated = module("gsm8k", "prepare.py"), environments.named("gsm8k", HERE).prepare
    assert stated is not None
    said = stated.settings | {"dataset": str(tmp_path / "data"), "search": 6, "confirm": 4} | settings
    (tmp_path / "settings.json").write_text(json.dumps(said))
    with pytest.raises(recipe.CannotPrepare) as refused:
        recipe.main(tmp_path)
    assert str(refused.value).startswith(why)


def test_a_setting_that_no_recipe_knows_or_that_is_no_number_is_refused() -> None:
    for name, value, why in (("serach", 1, "unknown setting 'serach'"), ("search", 2.5, "must be like 500")):
        with pytest.raises(Refused, match=why):
            environments.named("gsm8k_one_gpu", {f"prepare.settings.{name}": value})


def test_a_campaign_goes_on_with_the_helpers_that_its_recipe_began_with(tmp_path: Path) -> None:
    arithmetic = environments.named("arithmetic", HERE)
    freeze(arithmetic, tmp_path)
    recipe, frozen = arithmetic.prepare, tmp_path / "environment"
    assert recipe is not None and recipe.digest(frozen) == recipe.digest(arithmetic.folder)
    assert all(path.is_relative_to(frozen) for path, _ in recipe.texts(frozen))


RIGHT = [
    ("18.", "18"), ("18.0", "18"), ("1,234", "1234"), (r"\$18", "18"), ("x = 7", "7"), ("-5", "-5"),
    (r"\frac{36}{2}", "18"), (r"90^\circ", "90"), (r"12 \text{ cm}^2", "12"),
]  # fmt: skip
"""What is boxed, and an answer that it is."""
WRONG = [
    ("", "18"), ("-18", "18"), ("18 or 19", "18"), (r"\frac{1}{0}", "1"), ("9" * 5000, "9"), ("9^{9^{9^{9}}}", "3"),
    ("(" * 499, "3"),
]  # fmt: skip


# The comparison of the largest takes its five seconds; the alarm may ring while another library counts garbage.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_answers_are_compared_by_their_value() -> None:
    taskset = module("gsm8k", "taskset.py")
    assert [pair for pair in RIGHT if not taskset.reward("", f"So \\boxed{{{pair[0]}}}.", pair[1])] == []
    assert [pair for pair in WRONG if taskset.reward("", f"So \\boxed{{{pair[0]}}}.", pair[1])] == []
    wrong = (r"\boxed{18}, or is it \boxed{3}", "18", r"\boxed{18} \boxed{")
    last = [taskset.reward("", reply, "18") for reply in (r"first \boxed{3}, then \boxed {18}", *wrong)]
    assert last == [1.0, 0.0, 0.0, 0.0], "the last box of a reply is the answer"


PRIME_RL = Path(prime_rl.__file__).parent / "prime_rl_parts/harnesses/ask_once.py"


@pytest.mark.parametrize(
    ("name", "reply", "answer"),
    [("gsm8k", r"\boxed{18}", "18"), ("reverse_text", "<reversed_text>ba</reversed_text>", "ba")],
)
@pytest.mark.parametrize("file", ["taskset.py", PRIME_RL], ids=["functions", "verifiers"])
def test_the_judge_asks_and_scores_by_functions_and_by_the_verifiers_taskset_that_prime_rl_makes_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path, name: str, reply: str, answer: str
) -> None:
    pool, folder, ids = tmp_path / "search.jsonl", environments.find(name), [f"{at:016x}" for at in range(2)]
    lines(pool, [{"id": id, "question": f"Q{at}", "answer": answer} for at, id in enumerate(ids)])
    monkeypatch.syspath_prepend(folder)
    with Taskset(folder / file, pool, ids, 30, time.monotonic() + 600) as taskset:
        ((system, user),) = taskset.prompts([1])
        assert [taskset.reward(*one) for one in ((0, reply), (1, reply), (1, "no idea"))] == [1.0, 1.0, 0.0]
    assert [system, user] == module(name, "taskset.py").prompt("Q1")


def test_training_asks_each_question_once_from_within_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what it says to the endpoint: verifiers itself is not run."""
    asked: list[tuple[str, str | None, dict[str, Any]]] = []

    class Endpoint(Handler):
        def do_POST(self) -> None:
            asked.append((self.path, self.headers["Authorization"], json.loads(self.body())))
            self.answer(400, b"full")

    theirs = ModuleType("taskset")
    monkeypatch.setitem(sys.modules, "taskset", theirs)
    ask_once = importlib.import_module("prime_rl_parts.harnesses.ask_once")  # imports verifiers, some seconds
    vf = ask_once.vf
    said = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    with serving(Endpoint) as url:
        chat = ask_once.AskOnce(vf.HarnessConfig(id="ask_once"))
        for data in (vf.TaskData(prompt="Q", system_prompt="S"), vf.TaskData(prompt=said)):
            ended = asyncio.run(chat.launch(SimpleNamespace(model="m"), None, None, f"{url}/v1", "secret", {}, data))
            assert (ended.exit_code, ended.stderr) == (1, "full")
    assert asked == [("/v1/chat/completions", "Bearer secret", {"model": "m", "messages": said})] * 2
    theirs.__dict__.update(__all__=["Own"], Own=type("Own", (vf.Taskset,), {}))
    assert importlib.reload(ask_once).Asked is theirs.Own, "a taskset that is one of verifiers is asked itself"


# Arithmetic


def test_every_sum_falls_into_one_split_and_the_judge_has_three_tenths() -> None:
    recipe = module("arithmetic", "prepare.py")
    parts = recipe.split(recipe.questions(4))
    ids = {name: {row["id"] for row in part} for name, part in parts.items()}
    assert ids.keys() == {"train", "search", "confirm", "report"}
    assert sum(map(len, ids.values())) == len(set().union(*ids.values())) == 10_000
    assert all(850 < len(ids[name]) < 1150 for name in ("search", "confirm", "report"))
    assert all(int(row["answer"]) == eval(row["question"]) for row in parts["search"][:50])


def test_the_taskset_calls_right_what_ends_with_the_right_total() -> None:
    from tasks.trainers import grpo

    taskset = module("arithmetic", "taskset.py")
    right = ["04,06=07", "=7", "=08=07", "04,06= 07 "]
    wrong = ["04,06=08", "=17", "", "=", "04,06=", "07", "04,06,07"]
    malformed = ["=07,", "=07 or 08", "=-7", "=7.0", "=\u0667", "=" + "0" * 5000 + "7", "=07=", "7=x"]
    assert [reply for reply in (*right, *wrong, *malformed) if taskset.reward("", reply, "7")] == right
    for reply in ("04,06=07", "=07", "04,06=08", "=", ""):
        assert grpo.reward("", reply, "7") == taskset.reward("", reply, "7"), "the trainer pays alike"


@pytest.mark.skipif(not importlib.util.find_spec("reasoning_gym"), reason="reasoning_gym is not installed")
def test_questions_of_reasoning_gym_have_its_own_scorers_and_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    few: dict[str, Any] = {"options": {}, "train": 8, "search": 4, "confirm": 4, "report": 4, "model": "/no-model"}
    asking = few | {"dataset": "countdown", "options": {"max_numbers": 5}, "instruction": "Answer in <answer> tags."}
    assert "'/no-model' has no config.json" in prepared("reasoning_gym", tmp_path / "made", asking), "as the last step"
    file = tmp_path / "made/judge/search.jsonl"
    asked = rows(file)
    assert len({row["id"] for path in tmp_path.rglob("*.jsonl") for row in rows(path)}) == 20
    ids = [row["id"] for row in asked]
    with Taskset(environments.find("reasoning_gym") / "taskset.py", file, ids, 60, 1e12) as taskset:
        assert all(prompt[-1]["content"].endswith("tags.") for prompt in taskset.prompts(range(4)))
        said = [f"I think so.\n<answer>{row['answer']}</answer>" for row in asked]
        assert [taskset.reward(*one) for one in enumerate(said)] == [1.0] * 4
        assert max(taskset.reward(place, "<answer>no</answer>") for place in range(4)) < 0.5
    for place, (settings, words) in enumerate([
        ({"dataset": "chain_summ"}, "chain_summ"),
        ({"dataset": "graph_color"}, "its scorer needs more than a file holds"),
        ({"options": {"min_terms": 2, "max_terms": 2, "max_digits": 1}, "train": 5000}, "different questions"),
    ]):  # fmt: skip
        error = prepared("reasoning_gym", tmp_path / str(place), few | settings)
        assert "reasoning_gym cannot be prepared" in error and words in error
