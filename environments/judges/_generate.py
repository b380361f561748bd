"""The generator: completes prompts with the model under judgement. A program by itself; it imports nothing of ours.

    python -I _generate.py BACKEND MODEL DEVICE         DEVICE is auto, cpu or cuda

BACKEND `transformers` loads the model's directory in this process, `vllm` has it served by `vllm serve` for so long,
and `openai` asks an endpoint of others for the model of that name; these two need the package `openai`. It is never
told an answer. It is spoken to in lines of JSON:

    <- {"concurrency": 64, ...}                         how to work: the fields of `How`
    -> {"ready": true}
    <- {"prompts": [[{"role": "user", "content": "3+4"}], ...], "samples": 16, "temperature": 1.0, "max_tokens": 64,
        "seed": 1}
    -> {"index": 0, "completions": [{"text": "7", "truncated": false}, ...], "tokens": 48}     for each, in any order;
    -> {"index": 1, "error": "..."}                     or why there is none
    <- {"end": true}                                    after as many requests as are liked
    -> {"finished": true}

`{"failed": reason}` in place of any of these says why it cannot go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npz", ".npy", ".h5", ".msgpack")
"""Endings of files that may hold pickled weights, or weights other than the judged ones."""
IGNORED = "training_args.bin"  # left by transformers' own trainer beside every model; never read here
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
SERVED = "policy"
VISIBLE = "CUDA_VISIBLE_DEVICES"
QUIET = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it is compiled by nvcc at the start, and only top-k and top-p need it
}  # fmt: skip
LOOK_SECONDS, TOKEN_SECONDS, STOP_SECONDS = 0.25, 60.0, 20.0
CAUSE = re.compile(r"\b[A-Z]\w*(Error|Exception): ")
CONSEQUENCE = "Engine core initialization failed"

Reply = dict[str, Any]
Complete = Callable[["Request"], Iterator[Reply]]
"""Completes the prompts of one request: a reply for each of them."""
Backend = Callable[[str, str, "How"], contextlib.AbstractContextManager[Complete]]


class CannotGenerate(Exception):
    """The generator cannot continue; the message is the reason."""


@dataclass(frozen=True)
class How:
    """Settings; each backend reads the fields that it needs."""

    tokenizer: str = ""  # a directory; empty for the model's own
    batch: int = 256  # completions at a time in this process
    base_url: str = ""
    key: str = ""
    concurrency: int = 64  # requests at a time
    retries: int = 4
    request_seconds: float = 300.0
    start_seconds: float = 600.0
    vllm: str = "vllm"
    vllm_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """Prompts to complete, `samples` times each; at temperature 0 with the likeliest tokens."""

    prompts: list[list[dict[str, Any]]]
    samples: int
    temperature: float
    max_tokens: int
    seed: int


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
    if path.suffix == ".py" or (path.name.endswith("config.json") and b'"auto_map"' in path.read_bytes()):
        return "it is code or names some (auto_map), and no code of a model is run: leave it out"
    return ""


@contextlib.contextmanager
def in_process(model: str, device: str, how: How) -> Iterator[Complete]:
    """The model in this process, by transformers: in float32 on one thread, in bfloat16 on a GPU."""
    folder, words = Path(model), Path(how.tokenizer or model)
    check_model(folder, words)
    os.environ |= OFFLINE
    import torch

    torch.set_num_threads(1)
    gpu = device != "cpu" and torch.cuda.is_available()
    if device == "cuda" and not gpu:
        raise CannotGenerate("did not start: device is cuda, and torch finds no GPU")
    tokenizer, network = _loaded(folder, words, torch.bfloat16 if gpu else torch.float32)
    network = network.to("cuda" if gpu else "cpu").eval()
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
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.pad_token or tokenizer.eos_token
    told = [network.generation_config.eos_token_id, network.config.eos_token_id, tokenizer.eos_token_id]
    ends = {end for some in told if some is not None for end in (some if isinstance(some, list) else [some])}
    # The judge sets how to generate; nothing of the model's own settings is kept.
    network.generation_config = library.GenerationConfig(eos_token_id=sorted(ends))
    return tokenizer, network


def _generated(request: Request, tokenizer: Any, network: Any, batch: int) -> Iterator[Reply]:
    import torch

    texts = (tokenizer.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in request.prompts)
    prompts = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    room = getattr(network.config, "max_position_embeddings", None) or sys.maxsize
    if (longest := max(map(len, prompts)) + request.max_tokens) > room:
        raise CannotGenerate(f"refused: prompt and max_tokens make up to {longest} tokens, the model takes {room}")
    ends = network.generation_config.eos_token_id
    how = {"temperature": request.temperature, "top_k": 0, "top_p": 1.0} if request.temperature else {}
    how |= {"do_sample": bool(how), "max_new_tokens": request.max_tokens, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(request.seed)
    alike = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))  # similar lengths: less padding
    rows = [index for index in alike for _ in range(request.samples)]
    held: dict[int, Reply] = {}
    for first in range(0, len(rows), batch):
        part = rows[first : first + batch]
        padded = tokenizer.pad({"input_ids": [prompts[index] for index in part]}, return_tensors="pt")
        made = network.generate(**padded.to(network.device), **how)[:, padded["input_ids"].shape[1] :]
        for index, tokens in zip(part, made.tolist(), strict=True):
            reply = held.setdefault(index, {"index": index, "completions": [], "tokens": 0})
            end = next((at for at, token in enumerate(tokens) if token in ends), None)
            text = tokenizer.decode(tokens[:end], skip_special_tokens=True)
            reply["completions"].append({"text": text, "truncated": end is None})
            reply["tokens"] += len(tokens) if end is None else end + 1
            if len(reply["completions"]) == request.samples:
                yield held.pop(index)


class ChatServer:
    """A server with OpenAI's chat completions API; the client retries what may pass, and waits as it is told to."""

    def __init__(self, base_url: str, model: str, how: How, more: dict[str, Any] | None = None) -> None:
        import openai

        self._client = openai.OpenAI(
            base_url=base_url, api_key=how.key or "none", max_retries=how.retries, timeout=how.request_seconds,
            # No proxy: a server of this machine is asked, too. Certificates are the system's.
            http_client=openai.DefaultHttpxClient(trust_env=False, verify=ssl.create_default_context()),
        )  # fmt: skip
        self._faults = (openai.OpenAIError, TypeError, LookupError, AttributeError, ValueError)
        self._model, self._how, self._more = model, how, more or {}

    def complete(self, request: Request) -> Iterator[Reply]:
        """A reply for each prompt, in the order of arrival."""
        pool = ThreadPoolExecutor(self._how.concurrency)
        try:
            under_way = [pool.submit(self._reply, request, index) for index in range(len(request.prompts))]
            for done in as_completed(under_way):
                yield done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _reply(self, request: Request, index: int) -> Reply:
        """The completions of a prompt, or what was wrong with the answer, which may be anything."""
        try:
            return self._completed(request, index)
        except self._faults as why:
            words = f"{type(why).__name__}: {why}: {why.__cause__ or ''}".rstrip(": ")
            return {"index": index, "error": words.replace(self._how.key or "\0", "[key]")}

    def _completed(self, request: Request, index: int) -> Reply:
        reply: Reply = {"index": index, "completions": [], "tokens": 0}
        while wanted := request.samples - len(reply["completions"]):  # some servers ignore n
            answer = self._client.chat.completions.create(
                model=self._model, messages=request.prompts[index], n=wanted, top_p=1.0,
                temperature=request.temperature, max_tokens=request.max_tokens, extra_body=self._more,
                seed=random.Random(f"{request.seed} {index} {wanted}").getrandbits(31),
            )  # fmt: skip
            if not 1 <= len(answer.choices) <= wanted:
                raise ValueError(f"{len(answer.choices)} completions instead of {wanted}")
            reply["completions"] += [
                {"text": str(one.message.content or ""), "truncated": one.finish_reason == "length"}
                for one in answer.choices
            ]
            reply["tokens"] += int(answer.usage.completion_tokens)
        return reply


def elsewhere(model: str, device: str, how: How) -> contextlib.nullcontext[Complete]:
    """A model that somebody else serves."""
    return contextlib.nullcontext(ChatServer(how.base_url, model, how).complete)


@contextlib.contextmanager
def served(model: str, device: str, how: How) -> Iterator[Complete]:
    """The model in `vllm serve`, started here; the sandbox ends what it leaves behind, such as its engine."""
    check_model(Path(model), Path(how.tokenizer or model))
    port = free_port()
    command = [
        how.vllm, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", SERVED,
        "--load-format", "safetensors", "--generation-config", "vllm", *how.vllm_args,
        *(["--tokenizer", how.tokenizer] if how.tokenizer else []),
    ]  # fmt: skip
    path = os.pathsep.join([str(Path(how.vllm).parent), os.environ.get("PATH", os.defpath)])
    errors: deque[str] = deque(maxlen=100)
    try:
        server = subprocess.Popen(
            command, env=os.environ | QUIET | cards() | {"PATH": path},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except OSError as fault:
        raise CannotGenerate(f"did not start: {how.vllm}: {fault.strerror}") from fault
    assert server.stdout is not None, "started with a pipe"
    threading.Thread(target=_listen, args=(server.stdout, errors), daemon=True).start()
    try:
        url, more = f"http://127.0.0.1:{port}/v1", {"stop_token_ids": ends(Path(model))}
        probe = ChatServer(url, SERVED, replace(how, retries=0, request_seconds=TOKEN_SECONDS), more)
        wait_until_ready(server, probe, how.start_seconds, errors)
        yield ChatServer(url, SERVED, how, more).complete
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)


def free_port() -> int:
    """A free port of the loopback interface."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port
    except PermissionError as denied:
        raise CannotGenerate(
            "refused: there is no loopback in this sandbox to serve a model on: it takes --isolation bwrap"
        ) from denied


def cards() -> dict[str, str]:
    """The usable GPUs by number, as environment variables: several versions of vLLM fail at a UUID.

    A GPU that nvidia-smi does not list, such as a part of one, is passed unchanged.
    """
    words = [word.strip() for word in os.environ.get(VISIBLE, "").split(",")]
    if not any(words) or all(word.isdigit() for word in words):
        return {}
    query = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as fault:
        raise CannotGenerate(f"did not start: nvidia-smi tells no number of GPU {', '.join(words)}: {fault}") from fault
    numbers = {uuid: number for number, uuid in re.findall(r"^(\d+), *(\S+)", listed, re.MULTILINE)}
    # The order in which nvidia-smi counts.
    return {VISIBLE: ",".join(numbers.get(word, word) for word in words), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def ends(model: Path) -> list[int]:
    """The tokens that end a completion by the model's settings, the only ones that vLLM reads."""
    found: set[int] = set()
    for path in (model / "generation_config.json", model / "config.json"):
        told = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
        found |= set(told if isinstance(told, list) else [] if told is None else [told])
    return sorted(found)


def _listen(pipe: IO[bytes], errors: deque[str]) -> None:
    """Pass on the server's output, and keep its errors but the one that reports others: the cause is before it."""
    for line in pipe:
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
        text = line.decode(errors="replace").strip()
        if CAUSE.search(text) and CONSEQUENCE not in text:
            errors.append(text[:300])


def wait_until_ready(server: subprocess.Popen[bytes], probe: ChatServer, seconds: float, errors: Sequence[str]) -> None:
    """Wait until the server has made a token: its health says nothing of its engine."""
    request = Request([[{"role": "user", "content": "1"}]], 1, 0.0, 1, 0)
    deadline, why = time.monotonic() + seconds, "it was never asked"
    while time.monotonic() < deadline:
        if (status := server.poll()) is not None:
            time.sleep(LOOK_SECONDS)  # its last output is on the way
            cause = f" ({errors[-1]})" if errors else ""
            raise CannotGenerate(f"did not start: `vllm serve` ended with status {status}{cause}")
        (reply,) = probe.complete(request)
        if "error" not in reply:
            return
        why = reply["error"]
        if why.startswith("BadRequestError"):
            raise CannotGenerate(f"did not start: `vllm serve` answers no question: {why}")
        time.sleep(LOOK_SECONDS)
    raise CannotGenerate(f"did not start: `vllm serve` was not ready within {seconds:g} s: {why}")


BACKENDS: dict[str, Backend] = {"transformers": in_process, "vllm": served, "openai": elsewhere}

if __name__ == "__main__":
    sys.exit(main())
