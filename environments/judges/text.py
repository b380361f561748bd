"""The text judge: a language model answers held-out questions, and a verifiers taskset scores the answers.

Training leaves a Hugging Face model directory in `{out}/model`. A generator (`_generate.py`) completes prompts with
it in the judge's sandbox, which holds no answers and no rewards. The unit is a question: the mean reward of its
samples, drawn at `temperature`. The greedy completion of each question is scored as well and reported as
`pass@1/greedy`. It is no guard, since training that improves samples may well worsen the greedy completion.

A question that could not be completed is no wrong answer: it costs the score, and the reason says how many there
were. Each question with its expected answer, and every completion with its reward, is kept in answers.jsonl.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import time
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from environments.judges import BlockUnits, Candidate, Exam, Judge, Misbehaved, Use, _questions
from environments.judges._questions import ANSWERS, Answers
from environments.judges._talk import Talk
from environments.judges._taskset import Taskset
from environments.recipe import DATA
from environments.score import METRIC, Score, source_metric

GENERATOR = Path(__file__).with_name("_generate.py")
GREEDY, TOKENS, TRUNCATED = "pass@1/greedy", "tokens/mean", "truncated/share"
MODEL, BASE = "{out}/model", "base"
NEEDED = {"transformers": ("torch", "transformers"), "vllm": (), "openai": ("openai",)}
"""What the generator imports for each backend, in the Python of the programs; the taskset needs verifiers, in ours.
vLLM has a Python of its own."""


class Endpoint(BaseModel):
    """A server with OpenAI's API run by somebody else, and how it is used."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    base_url: str = Field(default="", description="Its address, such as http://127.0.0.1:8000/v1.")
    model: str = Field(default=MODEL, description="The model's name there. {out}: what training left; {seed}.")
    key_variable: str = Field(default="", description="The engine's variable that holds the key for it.")
    concurrency: int = Field(default=64, ge=1, le=512, description="Requests that are under way at one time.")
    retries: int = Field(default=4, ge=0, le=20, description="How often a request that failed is made again.")
    request_seconds: float = Field(default=300, gt=0, description="How long one request may take.")


class Text(Judge):
    """Questions answered by the trained model, scored by the rewards of a taskset."""

    model_config = ConfigDict(allow_inf_nan=False)

    runs_in: ClassVar[Literal["workspace", "environment"]] = "environment"
    shows_prepared: ClassVar[bool] = False

    taskset: str = Field(default="taskset.py", description="The module with the taskset, a file of the environment.")
    questions: int = Field(default=200, ge=0, le=100_000, description="Questions per look; 0: all of its pool.")
    samples: int = Field(default=16, ge=1, le=1024, description="Completions of each question that are averaged.")
    temperature: float = Field(default=1.0, ge=0, le=2, description="Of sampling; 0: the likeliest token.")
    max_tokens: int = Field(default=512, ge=1, le=1_000_000, description="Tokens of the longest completion.")
    sources: dict[Annotated[str, Field(pattern=METRIC)], Annotated[float, Field(gt=0, le=1e6)]] = Field(
        default={}, description="How much the mean of each source counts, by its name; absent: all alike."
    )
    backend: Literal["transformers", "vllm", "openai"] = Field(
        default="transformers", description="Who generates: transformers or vLLM on this machine, or `endpoint`."
    )
    batch: int = Field(default=256, ge=1, le=65_536, description="Completions that transformers makes at one time.")
    vllm: str = Field(default="vllm", description="The `vllm` command, by name or path; it may be of another Python.")
    vllm_args: dict[str, bool | int | float | str] = Field(
        default={}, description="Further arguments of vLLM's engine, such as max_model_len."
    )
    endpoint: Endpoint = Field(default=Endpoint(), description="The server that is asked, and how.")
    start_seconds: float = Field(default=600, gt=0, description="How long loading the model may take.")
    answer_seconds: float = Field(default=600, gt=0, description="How long it may take until the next answer.")
    reward_seconds: float = Field(default=30, gt=0, le=86_400, description="How long scoring one completion may take.")
    total_seconds: float = Field(default=3600, gt=0, description="How long the whole evaluation may take.")

    @property
    def reads(self) -> tuple[str, ...]:
        served = map(str, _places(self.vllm)) if self.backend == "vllm" else ()
        return (self.taskset, str(GENERATOR), *served)

    @property
    def imports(self) -> tuple[str, ...]:
        return NEEDED[self.backend]

    @property
    def online(self) -> bool:
        return self.backend == "openai"

    @property
    def block_units(self) -> BlockUnits:
        return "disjoint"

    def most_blocks(self, prepared: Path, use: Use) -> int | None:
        return _questions.rarest(_questions.pool(_questions.pool_file(prepared, use)))

    def command(self) -> str:
        model = self.endpoint.model if self.backend == "openai" else MODEL
        python = str(_command(self.vllm).with_name("python")) if self.backend == "vllm" else "python"
        python, program = (shlex.quote(path.replace("{", "{{").replace("}", "}}")) for path in (python, str(GENERATOR)))
        return f"{python} -I -B {program} {self.backend} {shlex.quote(model)} {{device}}"

    def measures(self) -> tuple[str, ...]:
        """Not the greedy mean; of the sources, those that [text.sources] names."""
        return (TOKENS, TRUNCATED, *map(source_metric, self.sources))

    def check(self, folder: Path) -> None:
        file = folder / self.taskset
        if file.is_file() and "verifiers" in file.read_text() and importlib.util.find_spec("verifiers") is None:
            raise ValueError(f"{self.taskset} needs the package 'verifiers': pip install verifiers")
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(f"samples = {self.samples} with temperature = 0 are all the same answer: set samples = 1")
        # A path may exist only where trials run.
        if self.backend == "vllm" and not Path(self.vllm).is_absolute() and shutil.which(self.vllm) is None:
            raise ValueError(f"no command {self.vllm!r} is on PATH: install vllm, or set vllm to its path")
        url, variable = self.endpoint.base_url, self.endpoint.key_variable
        if self.backend == "openai" and urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"endpoint.base_url must be an address such as http://127.0.0.1:8000/v1, got {url!r}")
        if variable and variable not in os.environ:
            raise ValueError(f"endpoint.key_variable: {variable} is not set: export the endpoint's key there")

    def score(self, candidate: Candidate, exam: Exam) -> Score:
        """Average the rewards; the questions and their sampling have separate children of the exam's seed."""
        if exam.prepared is None or exam.folder is None:
            raise Misbehaved("there are no questions: a text judge needs a [prepare] that makes them")
        ends = time.monotonic() + self.total_seconds
        for_draw, for_samples, for_greedy = np.random.SeedSequence(exam.seed).spawn(3)
        file = _questions.pool_file(exam.prepared, exam.use)
        talk = Talk(candidate, self.answer_seconds, ends)
        try:
            pool = _questions.pool(file)
            weights = _questions.weights(pool, self.sources)
            share = _questions.share(pool, exam.block)
            many = self.questions if exam.block is None else min(self.questions, _questions.evenly(share))
            drawn = _questions.draw(share, many, for_draw)
            talk.start(self._how(exam.prepared / DATA / BASE))  # it loads the model while the taskset is loaded here
            ids = [question.id for question in pool]
            with Taskset(exam.folder / self.taskset, file, ids, self.reward_seconds, ends, exam.check) as taskset:
                prompts = taskset.prompts([question.place for question in drawn])
                talk.wait_until_ready(self.start_seconds)
                sampled = talk.ask(prompts, self.samples, self.temperature, self.max_tokens, _word(for_samples))
                kinds = {"sampled": Answers.scored(taskset, drawn, sampled)}
                if not kinds["sampled"].failures:
                    with contextlib.suppress(Misbehaved):  # it stands beside the score, and costs none
                        greedy = talk.ask(prompts, 1, 0.0, self.max_tokens, _word(for_greedy))
                        kinds["greedy"] = Answers.scored(taskset, drawn, greedy)
                        talk.end()
        except ValueError as wrong:
            raise Misbehaved(f"the questions for {exam.use}: {wrong}") from wrong
        _questions.store(candidate.result.with_name(ANSWERS), kinds)
        score, completions = kinds["sampled"].score(weights, exam.higher_is_better), len(drawn) * self.samples
        also = {
            TOKENS: sum(one.tokens for one in sampled) / completions,
            TRUNCATED: sum(one.truncated for one in sampled) / completions,
        }
        with contextlib.suppress(Misbehaved, LookupError):
            if (likeliest := kinds["greedy"].score(weights, exam.higher_is_better).value) is not None:
                also[GREEDY] = likeliest
        return replace(score, also=also | score.also)

    def _how(self, base: Path) -> dict[str, Any]:
        """The generator's settings; an API key is never part of a command line.

        If the recipe has made a base model, its tokenizer replaces the trained model's: a chat template is a program,
        which could compute the answer and put it into the prompt.
        """
        return {
            **self.endpoint.model_dump(exclude={"model", "key_variable"}),
            "batch": self.batch,
            "vllm_args": self.vllm_args,
            "key": os.environ.get(self.endpoint.key_variable, ""),
            "tokenizer": str(base) if base.is_dir() else "",
        }


def _word(seed: np.random.SeedSequence) -> int:
    """31 bits of it: libraries pass a seed to a C int."""
    return int(seed.generate_state(1)[0]) >> 1


def _command(vllm: str) -> Path:
    """Where the `vllm` command is, beside the Python that has vLLM."""
    return Path(command).resolve() if (command := shutil.which(vllm)) else Path(vllm)


def _places(vllm: str) -> tuple[Path, ...]:
    """What vLLM reads here: its virtual environment and that one's Python, or the command's folder alone."""
    command = _command(vllm)
    settings = command.parent.parent / "pyvenv.cfg"
    if not settings.is_file():
        return (command.parent,) if command.is_absolute() and command.exists() else ()
    lines = (line.partition("=") for line in settings.read_text().splitlines())
    homes = [Path(value.strip()).parent for key, _, value in lines if key.strip() == "home"]
    return (settings.parent, *(home for home in homes if home.exists() and not home.is_relative_to("/usr")))
