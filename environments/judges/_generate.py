"""The generator: completes prompts with the model under judgement. A program by itself; it imports nothing of ours.

    python -I _generate.py BACKEND MODEL DEVICE         DEVICE is auto, cpu or cuda

BACKEND `transformers` loads the model's directory in this process, `vllm` has it served by `vllm serve` for so long,
and `openai` asks an endpoint of others for the model of that name. It is never told an answer. It is spoken to in lines
of JSON:

    <- {"concurrency": 64, ...}                         how to work: the fields of `How`
    -> {"ready": true}
    <- {"prompts": [[{"role": "user", "content": "3+4"}], ...], "samples": 16, "temperature": 1.0, "max_tokens": 64,
        "seed": 1, "seconds": 600}
    -> {"index": 0, "completions": [{"text": "7", "truncated": false}, ...], "tokens": 48}     for each, in any order;
    -> {"index": 1, "error": "..."}                     or why there is none
    <- {"end": true}                                    after as many requests as are liked
    -> {"finished": true}                               everything that it has started is gone

`{"failed": reason}` in place of any of these says why it cannot go on.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npz", ".npy", ".h5", ".msgpack")
"""Endings of files that may hold pickled weights, or weights other than the judged ones."""
IGNORED = "training_args.bin"  # left by transformers' own trainer beside every model; never read here
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
SERVED = "policy"
LONGEST_PAUSE = 30.0
RESPONSE_BYTES = 64 * 2**20
PASSING = frozenset({408, 409, 425, 429})  # statuses below 500 that may pass at the next attempt

Reply = dict[str, Any]
Complete = Callable[["Request"], Iterator[Reply]]
"""Completes the prompts of one request: a reply for each of them."""
Backend = Callable[[str, str, "How"], contextlib.AbstractContextManager[Complete]]


class CannotGenerate(Exception):
    """The generator cannot continue; the message is the reason."""


class Passing(Exception):
    """A request failed in a way that may pass at the next attempt, after `pause` seconds if given."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


@dataclass(frozen=True)
class How:
    """Settings; each backend reads the fields that it needs."""

    batch: int  # completions at a time in this process
    base_url: str
    key: str
    concurrency: int  # requests at a time
    retries: int
    request_seconds: float
    start_seconds: float
    vllm: str
    vllm_args: tuple[str, ...]
    tokenizer: str  # a directory; empty for the model's own


@dataclass(frozen=True)
class Request:
    """Prompts to complete, `samples` times each; at temperature 0 with the likeliest tokens."""

    prompts: list[list[dict[str, Any]]]
    samples: int
    temperature: float
    max_tokens: int
    seed: int
    seconds: float
    """How long an endpoint is retried."""


def main() -> int:
    backend, model, device = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # started processes are ended on the way out
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # libraries print to the log

        def say(reply: Reply) -> None:
            out.write(json.dumps(reply) + "\n")
            out.flush()

        try:
            how = How(**json.loads(sys.stdin.readline()))
            with BACKENDS[backend](model, device, how) as complete:
                say({"ready": True})
                for request in iter(_heard, None):
                    for reply in complete(request):
                        say(reply)
            say({"finished": True})
        except CannotGenerate as why:
            say({"failed": str(why)})
            return 1
    return 0


def _heard() -> Request | None:
    """The next request; None at the end."""
    line = sys.stdin.readline()
    told = json.loads(line) if line else {"end": True}
    return None if "end" in told else Request(**told)


def check_model(folder: Path, words: Path) -> None:
    """Refuse a directory that is no safetensors model, or would run code of its own."""
    # Without its file, transformers invents an empty tokenizer.
    for place, name in ((folder, "config.json"), (folder, "*.safetensors"), (words, "tokenizer.json")):
        if not any(place.glob(name)):
            raise CannotGenerate(f"refused: {place.name}/{name} is missing: leave a Hugging Face model there")
    for path in sorted(folder.rglob("*")):
        if why := _unfit(path):
            raise CannotGenerate(f"refused: {path.relative_to(folder).as_posix()} in {folder.name}: {why}")


def _unfit(path: Path) -> str:
    """Why a file cannot be part of a model; empty if it can."""
    if path.suffix in PICKLED and path.name != IGNORED:
        return "weights are read from safetensors only, and there may be no others beside them"
    if path.name == "adapter_config.json":
        return "it makes the model an adapter: merge it into its base before it is saved"
    if path.suffix == ".py":
        return "no code of a model is run: leave it out"
    if path.name.endswith("config.json") and b'"auto_map"' in path.read_bytes():
        return "it has an auto_map, and no code of a model is run: leave it out"
    return ""


@contextlib.contextmanager
def in_process(model: str, device: str, how: How) -> Iterator[Complete]:
    """The model in this process, by transformers: in float32 on one thread, in bfloat16 on a GPU."""
    folder, words = Path(model), Path(how.tokenizer or model)
    check_model(folder, words)
    os.environ |= OFFLINE
    gc.disable()  # among what libraries leave when they are imported is no garbage: to search it costs a fifth of that
    import torch

    torch.set_num_threads(1)
    gpu = device != "cpu" and torch.cuda.is_available()
    if device == "cuda" and not gpu:
        raise CannotGenerate("did not start: device is cuda, and torch finds no GPU")
    tokenizer, network = _loaded(folder, words, torch.bfloat16 if gpu else torch.float32)
    network = network.to("cuda" if gpu else "cpu").eval()
    gc.freeze()
    gc.enable()
    if not all(bool(torch.isfinite(weights).all()) for weights in network.parameters()):
        raise CannotGenerate("diverged: the model's weights hold NaN or infinity")

    def complete(request: Request) -> Iterator[Reply]:
        try:
            yield from _generated(request, tokenizer, network, how.batch)
        except torch.OutOfMemoryError as full:
            raise CannotGenerate(f"out of GPU memory: batch = {how.batch} is too many at one time ({full})") from full
        except CannotGenerate:
            raise
        except Exception as wrong:  # also of a foreign template or tokenizer
            raise CannotGenerate(f"refused: the model completes nothing ({type(wrong).__name__}: {wrong})") from wrong

    with torch.inference_mode():
        yield complete


def _loaded(folder: Path, words: Path, dtype: Any) -> tuple[Any, Any]:
    import transformers

    library: Any = transformers  # its types are incomplete
    alone = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(words, **alone)
        network, about = library.AutoModelForCausalLM.from_pretrained(
            folder, use_safetensors=True, dtype=dtype, output_loading_info=True, **alone
        )
    except Exception as wrong:  # whatever loading a foreign file raises
        raise CannotGenerate(f"refused: the model cannot be loaded ({type(wrong).__name__}: {wrong})") from wrong
    if lacking := [*about["missing_keys"], *about["mismatched_keys"]]:  # they would be initialised at random
        raise CannotGenerate(f"refused: the model lacks {len(lacking)} of its weights, such as {lacking[0]}")
    if tokenizer.chat_template is None:
        raise CannotGenerate("refused: the model's tokenizer has no chat template: save one with it")
    told = [network.generation_config.eos_token_id, network.config.eos_token_id, tokenizer.eos_token_id]
    ends = {end for some in told if some is not None for end in (some if isinstance(some, list) else [some])}
    # The judge sets how to generate; nothing of the model's own settings is kept.
    network.generation_config = library.GenerationConfig(eos_token_id=sorted(ends))
    return tokenizer, network


def _generated(request: Request, tokenizer: Any, network: Any, batch: int) -> Iterator[Reply]:
    import torch

    prompts = [
        tokenizer.encode(
            tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True), add_special_tokens=False
        )
        for prompt in request.prompts
    ]
    room = getattr(network.config, "max_position_embeddings", None) or sys.maxsize
    if (longest := max(map(len, prompts)) + request.max_tokens) > room:
        raise CannotGenerate(f"refused: prompt and max_tokens make up to {longest} tokens, the model takes {room}")
    ends = network.generation_config.eos_token_id
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (ends or [0])[0]
    how = {"temperature": request.temperature, "top_k": 0, "top_p": 1.0} if request.temperature else {}
    how |= {"do_sample": bool(how), "max_new_tokens": request.max_tokens, "pad_token_id": padding}
    torch.manual_seed(request.seed)
    alike = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))  # similar lengths: less padding
    rows = [index for index in alike for _ in range(request.samples)]
    held: dict[int, Reply] = {}
    for first in range(0, len(rows), batch):
        part = rows[first : first + batch]
        width = max(len(prompts[index]) for index in part)
        before = [width - len(prompts[index]) for index in part]
        ids = [[padding] * left + prompts[index] for left, index in zip(before, part, strict=True)]
        mask = [[0] * left + [1] * (width - left) for left in before]
        made = network.generate(
            input_ids=torch.tensor(ids, device=network.device),
            attention_mask=torch.tensor(mask, device=network.device),
            **how,
        )
        for index, tokens in zip(part, made[:, width:].tolist(), strict=True):
            reply = held.setdefault(index, {"index": index, "completions": [], "tokens": 0})
            end = next((at for at, token in enumerate(tokens) if token in ends), None)
            text = tokenizer.decode(tokens[:end], skip_special_tokens=True)
            reply["completions"].append({"text": text, "truncated": end is None})
            reply["tokens"] += len(tokens) if end is None else end + 1
            if len(reply["completions"]) == request.samples:
                yield held.pop(index)


class ChatServer:
    """A server with OpenAI's chat completions API."""

    def __init__(self, base_url: str, model: str, how: How, more: dict[str, Any] | None = None) -> None:
        self._url = urllib.parse.urlsplit(base_url.rstrip("/") + "/chat/completions")
        self._model, self._how, self._more = model, how, more or {}
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        self._headers |= {"Authorization": f"Bearer {how.key}"} if how.key else {}

    def complete(self, request: Request) -> Iterator[Reply]:
        """A reply for each prompt, in the order of arrival."""
        ends, over = time.monotonic() + request.seconds, threading.Event()
        pool = ThreadPoolExecutor(self._how.concurrency)
        every = range(len(request.prompts))
        try:
            under_way = [pool.submit(self._completed, request, index, ends, over) for index in every]
            for done in as_completed(under_way):
                yield done.result()
        finally:
            over.set()  # interrupts a wait before a retry
            pool.shutdown(wait=False, cancel_futures=True)

    def _completed(self, request: Request, index: int, ends: float, over: threading.Event) -> Reply:
        completions: list[Reply] = []
        tokens = 0
        while len(completions) < request.samples:  # some servers ignore n
            had = len(completions)
            body = {
                "model": self._model, "messages": request.prompts[index], "n": request.samples - had, "top_p": 1.0,
                "temperature": request.temperature, "max_tokens": request.max_tokens,
                "seed": random.Random(f"{request.seed} {index} {had}").getrandbits(31), **self._more,
            }  # fmt: skip
            try:
                some, used = self._persistently(body, ends, over)
            except CannotGenerate as why:
                return {"index": index, "error": str(why)}
            completions += some
            tokens += used
        return {"index": index, "completions": completions, "tokens": tokens}

    def _persistently(self, body: dict[str, Any], ends: float, over: threading.Event) -> tuple[list[Reply], int]:
        """One answer, retried where a failure may pass.

        Raises:
            CannotGenerate: it does not pass, or no time is left.
        """
        for attempt in range(1, self._how.retries + 2):
            left = ends - time.monotonic()
            try:
                return _read(self._ask(body, min(self._how.request_seconds, max(left, 0.001))), body["n"])
            except Passing as fault:
                why = f"{fault} (asked {attempt} times)"
                pause = min(max(fault.pause, 2**attempt * random.uniform(0.25, 0.5)), LONGEST_PAUSE)
            late = time.monotonic() + pause >= ends
            if late or attempt > self._how.retries or over.wait(pause):
                break
        raise CannotGenerate(f"no time was left: {why}" if late else why)

    def _ask(self, body: dict[str, Any], seconds: float) -> object:
        """What the endpoint answers.

        Raises:
            Passing: no connection, a status that may pass, no JSON, or not within `seconds`.
            CannotGenerate: any other status than 200.
        """
        secure = self._url.scheme == "https"
        connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            with contextlib.closing(connect(self._url.hostname or "", self._url.port, timeout=seconds)) as line:
                line.connect()
                late = threading.Timer(seconds, line.sock.shutdown, (socket.SHUT_RDWR,))  # of the whole answer
                late.daemon = True
                late.start()
                try:
                    line.request("POST", self._url.path, json.dumps(body), self._headers)
                    response = line.getresponse()
                    text = response.read(RESPONSE_BYTES)
                finally:
                    late.cancel()
        except (OSError, http.client.HTTPException) as fault:
            raise Passing(f"no answer from the endpoint ({type(fault).__name__}: {fault})") from fault
        if response.status != 200:
            said = text[:300].decode(errors="replace").replace(self._how.key or "\0", "[key]")
            reason = f"HTTP {response.status} from the endpoint: {said}"
            if response.status in PASSING or response.status >= 500:
                asked = response.getheader("Retry-After", "")
                raise Passing(reason, float(asked) if asked.isdecimal() else 0.0)
            raise CannotGenerate(reason)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as broken:
            raise Passing(f"the endpoint answered no JSON ({broken})") from broken


def _read(answer: Any, wanted: int) -> tuple[list[Reply], int]:
    """The completions of an answer, and their number of tokens.

    Raises:
        Passing: it is no chat completion, or not the one asked for.
    """
    try:
        made = [(one["message"]["content"] or "", one["finish_reason"]) for one in answer["choices"]]
        tokens = answer["usage"]["completion_tokens"]
    except (TypeError, LookupError) as wrong:
        why = f"{type(wrong).__name__}: {wrong}"
        raise Passing(f"the endpoint answered no chat completion ({why})") from wrong
    if not all(isinstance(text, str) for text, _ in made) or not isinstance(tokens, int) or tokens < 0:
        raise Passing("the endpoint answered a completion that is no text, or has no number of tokens")
    if not 1 <= len(made) <= wanted:
        raise Passing(f"the endpoint answered {len(made)} completions, asked for {wanted}")
    return [{"text": text, "truncated": reason == "length"} for text, reason in made], tokens


def elsewhere(model: str, device: str, how: How) -> contextlib.nullcontext[Complete]:
    """A model that somebody else serves."""
    return contextlib.nullcontext(ChatServer(how.base_url, model, how).complete)


@contextlib.contextmanager
def served(model: str, device: str, how: How) -> Iterator[Complete]:
    """The model in `vllm serve`, started and ended by another program, which outlives this one in any case."""
    check_model(Path(model), Path(how.tokenizer or model))
    command = [
        sys.executable, "-I", "-B", str(Path(__file__).with_name("_serve.py")), model, SERVED,
        str(how.start_seconds), how.vllm, *how.vllm_args, *(["--tokenizer", how.tokenizer] if how.tokenizer else []),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None, "started with pipes"
        told = json.loads(server.stdout.readline() or '{"failed": "did not start: _serve.py was ended"}')
        if "failed" in told:
            raise CannotGenerate(told["failed"])
        try:
            stop = {"stop_token_ids": told["stop_token_ids"]}
            yield ChatServer(f"http://127.0.0.1:{told['port']}/v1", SERVED, how, stop).complete
        finally:
            server.stdin.close()
            told = json.loads(server.stdout.readline() or "{}")
            if "failed" in told:
                raise CannotGenerate(told["failed"])


BACKENDS: dict[str, Backend] = {"transformers": in_process, "vllm": served, "openai": elsewhere}

if __name__ == "__main__":
    sys.exit(main())
