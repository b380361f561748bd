"""The text judge: a language model answers held-out questions, and a taskset scores the answers.

Training leaves a Hugging Face model directory in `{out}/model`. A generator (`_generate.py`) completes prompts with
it in the judge's sandbox, which holds no answers and no rewards. The unit is a question: the mean reward of its
samples. One that could not be completed is no wrong answer: it costs the score.

A pool is a file of JSON lines, `{"id": "0123456789abcdef", "question": "...", "answer": "..."}`, that the recipe made
and tasks/preparing.py checked. Judgements of one purpose share a pool.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from environments.judges import BlockUnits, Candidate, ComparisonBlock, Exam, Judge, Misbehaved
from environments.judges._taskset import Prompt, Taskset
from environments.recipe import DATA, JUDGE
from environments.score import Score

GENERATOR = Path(__file__).with_name("_generate.py")
ANSWERS = "answers.jsonl"
TOKENS, TRUNCATED = "tokens/mean", "truncated/share"
MODEL, BASE = "{out}/model", "base"
NEEDED = {"transformers": ("torch", "transformers"), "vllm": (), "openai": ("openai",)}
"""What the generator imports for each backend, in the Python of the programs; the taskset needs verifiers, in ours.
vLLM has a Python of its own."""

LINE_BYTES = 64 * 1024
TOKEN_BYTES = 256
"""Most bytes of text per token, on average: no real tokenizer has longer tokens."""

Question = dict[str, Any]
"""One line of a pool, and its number there as `line`."""


class Completion(BaseModel):
    """One text, and whether it was cut at the token limit."""

    text: str
    truncated: bool


class Reply(BaseModel):
    """What the generator says: that it is ready, has failed, or the completions of one prompt or why there are none."""

    ready: bool = False
    failed: str = ""
    index: int = -1
    completions: tuple[Completion, ...] = ()
    tokens: int = 0
    error: str = ""


class Endpoint(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A server with OpenAI's API run by somebody else, and how it is used."""

    base_url: str = Field(
        default="", pattern="^(https?://[^/]|$)", description="Its address, such as http://127.0.0.1:8000/v1."
    )
    model: str = Field(default=MODEL, description="The model's name there. {out}: what training left; {seed}.")
    key_variable: str = Field(default="", description="The engine's variable that holds the key for it.")


class Text(Judge, allow_inf_nan=False):
    """Questions answered by the trained model, scored by the rewards of a taskset."""

    shows_prepared: ClassVar[bool] = False
    block_units: ClassVar[BlockUnits] = "disjoint"

    taskset: str = Field(default="taskset.py", description="The module with the taskset, a file of the environment.")
    questions: int = Field(default=200, ge=0, le=100_000, description="Questions per look; 0: all of its pool.")
    samples: int = Field(default=16, ge=1, le=1024, description="Completions of each question that are averaged.")
    temperature: float = Field(default=1.0, ge=0, le=2, description="Of sampling; 0: the likeliest token.")
    max_tokens: int = Field(default=512, ge=1, le=1_000_000, description="Tokens of the longest completion.")
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
    total_seconds: FiniteFloat = Field(default=3600, gt=0, description="How long the whole evaluation may take.")

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.taskset, str(GENERATOR))

    @property
    def imports(self) -> tuple[str, ...]:  # type: ignore[override]
        return NEEDED[self.backend]

    @property
    def online(self) -> bool:  # type: ignore[override]
        return self.backend == "openai"

    def command(self) -> str:
        model = self.endpoint.model if self.backend == "openai" else MODEL
        vllm = Path(shutil.which(self.vllm) or self.vllm).resolve()  # beside it is the Python that has vLLM
        python = str(vllm.with_name("python")) if self.backend == "vllm" else "python"
        python, program = (shlex.quote(path.replace("{", "{{").replace("}", "}}")) for path in (python, str(GENERATOR)))
        return f"{python} -I -B {program} {self.backend} {shlex.quote(model)} {{device}}"

    def measures(self) -> tuple[str, ...]:
        return (TOKENS, TRUNCATED)

    def check(self, folder: Path) -> None:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(f"samples = {self.samples} with temperature = 0 are all the same answer: set samples = 1")
        # A path may exist only where trials run.
        if self.backend == "vllm" and not Path(self.vllm).is_absolute() and shutil.which(self.vllm) is None:
            raise ValueError(f"no command {self.vllm!r} is on PATH: install vllm, or set vllm to its path")
        if self.backend == "openai" and not self.endpoint.base_url:
            raise ValueError(
                "endpoint.base_url is missing: the address of the server, such as http://127.0.0.1:8000/v1"
            )
        if (variable := self.endpoint.key_variable) and variable not in os.environ:
            raise ValueError(f"endpoint.key_variable: {variable} is not set: export the endpoint's key there")

    def score(self, candidate: Candidate, exam: Exam) -> Score:
        if exam.prepared is None or exam.folder is None:
            raise Misbehaved("there are no questions: a text judge needs a [prepare] that makes them")
        ends = time.monotonic() + self.total_seconds
        for_draw, for_samples = np.random.SeedSequence(exam.seed).spawn(2)
        file = exam.prepared / JUDGE / f"{exam.use}.jsonl"
        try:
            pool = read_pool(file)
            questions = self._drawn(pool, exam.block, for_draw)
        except (Misbehaved, ValueError) as wrong:
            raise Misbehaved(f"{file.name}: {wrong}") from wrong
        ids = [question["id"] for question in pool]
        with Taskset(exam.folder / self.taskset, file, ids, self.reward_seconds, ends, exam.check) as taskset:
            prompts = taskset.prompts([question["line"] for question in questions])
            seed = int(for_samples.generate_state(1)[0]) >> 1  # 31 bits: libraries pass it to a C int
            answers = self._replies(candidate, self._request(prompts, seed, exam.prepared / DATA / BASE))
            rewards = [
                [taskset.reward(question["line"], one.text) for one in answer.completions]
                for question, answer in zip(questions, answers, strict=True)
            ]
        _keep(candidate.result.with_name(ANSWERS), questions, answers, rewards)
        both = zip(questions, answers, strict=True)
        if failed := [f"({question['id']}): {answer.error}" for question, answer in both if answer.error]:
            many = f"{len(failed)} of {len(questions)}"  # the mean over the others would be another measure
            raise Misbehaved(f"{many} questions could not be completed, the first {failed[0]}")
        cut = [one.truncated for answer in answers for one in answer.completions]
        also = {TOKENS: sum(answer.tokens for answer in answers) / len(cut), TRUNCATED: sum(cut) / len(cut)}
        units = [math.fsum(some) / len(some) for some in rewards]
        return replace(Score.of(units), also=also)

    def _drawn(
        self, pool: list[Question], block: ComparisonBlock | None, seed: np.random.SeedSequence
    ) -> list[Question]:
        """The questions of one judgement, in random order; of a block as many as it has at most."""
        share = share_of(pool, block) if block else pool
        many = min(self.questions, len(share)) if block else self.questions
        if block and len(pool) < block.of:
            raise Misbehaved(f"the pool has {len(pool)} questions for {block.of} blocks: make more of them")
        if len(share) < many:
            raise Misbehaved(f"the pool has {len(share)} questions, and {many} are to be asked")
        order = np.random.default_rng(seed).permutation(len(share))
        return [share[index] for index in order[: many or None]]

    def _request(self, prompts: Sequence[Prompt], seed: int, base: Path) -> dict[str, Any]:
        """What the generator is to do, and how; an API key is never part of a command line.

        If the recipe has made a base model, its tokenizer replaces the trained model's: a chat template is a program,
        which could compute the answer and put it into the prompt.
        """
        return {
            "prompts": prompts, "samples": self.samples, "temperature": self.temperature,
            "max_tokens": self.max_tokens, "seed": seed, "batch": self.batch, "vllm_args": self.vllm_args,
            "base_url": self.endpoint.base_url, "key": os.environ.get(self.endpoint.key_variable, ""),
            "tokenizer": str(base) if base.is_dir() else "",
        }  # fmt: skip

    def _replies(self, candidate: Candidate, request: Mapping[str, Any]) -> list[Reply]:
        """The generator's replies to each prompt of a request, in order."""
        prompts, most = len(request["prompts"]), LINE_BYTES + self.samples * self.max_tokens * TOKEN_BYTES
        made: dict[int, Reply] = {}
        when = "before it was ready"
        try:
            # What no pipe holds at once is read when libraries are loaded.
            candidate.send(json.dumps(request).encode() + b"\n", self.start_seconds)
            if not _reply(candidate.receive_line(LINE_BYTES, self.start_seconds)).ready:
                raise Misbehaved("the generator did not say that it is ready")
            while len(made) < prompts:
                when = f"after {len(made)} of {prompts} answers"
                reply = _reply(candidate.receive_line(most, self.answer_seconds))
                many = 0 if reply.error else self.samples
                if reply.index in made or not 0 <= reply.index < prompts or len(reply.completions) != many:
                    raise Misbehaved(f"the generator answered what it was not asked, prompt {reply.index}")
                made[reply.index] = reply
        except Misbehaved as wrong:
            raise Misbehaved(f"{wrong} ({when})") from wrong
        return [made[index] for index in range(prompts)]


def _reply(line: bytes) -> Reply:
    try:
        reply = Reply.model_validate_json(line)
    except ValidationError as wrong:
        raise Misbehaved(f"the generator answered in another form: {line[:300]!r}") from wrong
    if reply.failed:
        raise Misbehaved(reply.failed)
    return reply


def read_pool(file: Path) -> list[Question]:
    """The questions of a pool, in order. Raises Misbehaved: it is missing; ValueError: it cannot be read."""
    if not file.is_file():
        raise Misbehaved("it is missing: the recipe makes it (`nightshift env prepare`)")
    lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return [json.loads(line) | {"line": number} for number, line in enumerate(lines)]


def share_of(pool: list[Question], block: ComparisonBlock) -> list[Question]:
    """The questions of one block: disjoint shares of a pool, equally large up to one."""
    order = np.random.default_rng(block.of).permutation(len(pool))  # a pool may be ordered by subject
    return [pool[index] for index in order[block.number - 1 :: block.of]]


def _keep(
    path: Path, questions: Sequence[Question], answers: Sequence[Reply], rewards: Sequence[Sequence[float]]
) -> None:
    """Write each question with what was answered to it, one a line; replaces an old file."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:  # the folder may be a program's, too
        for question, answer, earned in zip(questions, answers, rewards, strict=True):
            sampled = {
                "error": answer.error, "completions": [one.text for one in answer.completions], "rewards": earned,
                "tokens": answer.tokens, "truncated": sum(one.truncated for one in answer.completions),
            }  # fmt: skip
            row = {"question": question["id"], "text": question["question"], "expected": question["answer"]}
            file.write(json.dumps(row | {"sampled": sampled}) + "\n")
    Path(file.name).replace(path)
