"""The generator: completes prompts with the model under judgement. A program by itself; it imports nothing of ours.

    python -I _generate.py BACKEND MODEL DEVICE         DEVICE is auto, cpu or cuda

BACKEND `transformers` loads the model's directory by transformers, `vllm` by vLLM, and `openai` asks an endpoint of
others for the model of that name, by the package `openai`. It is told no answer, and is spoken to in lines of JSON:

    <- {"prompts": [[{"role": "user", "content": "3+4"}], ...], "samples": 16, ...}     the fields of `Request`
    -> {"ready": true}
    -> {"index": 0, "completions": [{"text": "7", "truncated": false}, ...], "tokens": 48}     for each, in any order;
    -> {"index": 1, "error": "..."}                     or why there is none

`{"failed": reason}` in place of any answer says why it cannot go on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import ssl
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npz", ".npy", ".h5", ".msgpack")
"""Endings of files that may hold pickled weights, or weights other than the judged ones."""
CONCURRENCY = 64  # requests to an endpoint, or questions to vLLM, at a time
IGNORED = "training_args.bin"  # left by transformers' own trainer beside every model
QUIET = {
    "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine is this process: its errors are raised here
    "VLLM_HOST_IP": "127.0.0.1",  # or it asks the network for its own address
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it is compiled by nvcc at the start, and only top-k and top-p need it
}  # fmt: skip

Reply = dict[str, Any]
READY: Reply = {"ready": True}


class CannotGenerate(Exception):
    """The message is the reason."""


@dataclass(frozen=True)
class Request:
    """Prompts to complete, `samples` times each, and how; each backend reads the fields that it needs."""

    prompts: list[list[dict[str, Any]]]
    samples: int
    temperature: float  # 0: the likeliest tokens
    max_tokens: int
    seed: int
    tokenizer: str = ""  # a directory; empty for the model's own
    batch: int = 256  # completions at a time, by transformers
    vllm_args: dict[str, Any] = field(default_factory=dict)
    base_url: str = ""
    key: str = ""

    @classmethod
    def heard(cls) -> Request:
        """What the judge asks for."""
        return cls(**json.loads(sys.stdin.readline()))

    def seed_of(self, *words: int) -> int:
        """A seed of 31 bits, for a part of the request."""
        return random.Random(f"{self.seed} {words}").getrandbits(31)


def main() -> int:
    backend, model, device = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Half characters become question marks: no file and no library takes them.
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace") as out:
        os.dup2(2, 1)  # libraries print to the log
        try:
            for reply in BACKENDS[backend](model, device):
                print(json.dumps(reply, ensure_ascii=False), file=out, flush=True)
        except Exception as wrong:  # noqa: BLE001 (whatever a foreign model, a library or the driver raises)
            is_ours = isinstance(wrong, CannotGenerate)
            why = str(wrong) if is_ours else f"{backend} does not generate ({type(wrong).__name__}: {wrong})"
            print(json.dumps({"failed": why}, ensure_ascii=False), file=out, flush=True)
            return 1
    return 0


def check_model(folder: Path, words: Path) -> None:
    """Refuse a directory that is no safetensors model, or would run code of its own."""
    # Without its file, transformers invents an empty tokenizer.
    for place, name in ((folder, "config.json"), (folder, "*.safetensors"), (words, "tokenizer.json")):
        if not any(place.glob(name)):
            raise CannotGenerate(f"refused: {place.name}/{name} is missing: leave a Hugging Face model there")
    for path in sorted(folder.rglob("*")):
        if path.suffix in PICKLED and path.name != IGNORED:
            why = "weights are read from safetensors only, and there may be no others beside them"
        elif path.name == "adapter_config.json":
            why = "it makes the model an adapter: merge it into its base before it is saved"
        elif path.suffix == ".py" or (path.name.endswith("config.json") and b'"auto_map"' in path.read_bytes()):
            why = "it is code or names some (auto_map), and no code of a model is run: leave it out"
        else:
            continue
        raise CannotGenerate(f"refused: {path.relative_to(folder).as_posix()} in {folder.name}: {why}")


def by_transformers(model: str, device: str) -> Iterator[Reply]:
    """The model in float32 on one thread, or in bfloat16 on a GPU."""
    os.environ |= QUIET
    import torch  # while the questions are loaded

    torch.set_num_threads(1)
    request = Request.heard()
    folder, words = Path(model), Path(request.tokenizer or model)
    check_model(folder, words)
    gpu = device != "cpu" and torch.cuda.is_available()
    if device == "cuda" and not gpu:
        raise CannotGenerate("did not start: device is cuda, and torch finds no GPU")
    tokenizer, network = _loaded(folder, words, torch.bfloat16 if gpu else torch.float32)
    network = network.to("cuda" if gpu else "cpu").eval()
    if not all(bool(torch.isfinite(weights).all()) for weights in network.parameters()):
        raise CannotGenerate("diverged: the model's weights hold NaN or infinity")
    yield READY
    with torch.inference_mode():
        yield from _generated(request, tokenizer, network)


def _loaded(folder: Path, words: Path, dtype: Any) -> tuple[Any, Any]:
    library: Any = __import__("transformers")  # its types are incomplete
    alone = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = library.AutoTokenizer.from_pretrained(words, **alone)
    network, about = library.AutoModelForCausalLM.from_pretrained(
        folder, use_safetensors=True, dtype=dtype, output_loading_info=True, **alone
    )
    if lacking := [*about["missing_keys"], *about["mismatched_keys"]]:  # they would be initialised at random
        raise CannotGenerate(f"refused: the model lacks {len(lacking)} of its weights, such as {lacking[0]}")
    if tokenizer.chat_template is None:
        raise CannotGenerate("refused: the model's tokenizer has no chat template: save one with it")
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.pad_token or tokenizer.eos_token
    # The judge sets how to generate; nothing of the model's own settings is kept.
    stops = ends(folder, tokenizer.eos_token_id)
    network.generation_config = library.GenerationConfig(eos_token_id=stops)
    return tokenizer, network


def ends(model: Path, *more: Any) -> list[int]:
    """The tokens that end a completion, by the model's settings and `more`: a token, several, or none."""
    stated = [json.loads(path.read_text()).get("eos_token_id") for path in model.glob("*config.json")]
    lists = [some if isinstance(some, list) else [some] for some in (*stated, *more) if some is not None]
    return sorted({token for some in lists for token in some})


def _generated(request: Request, tokenizer: Any, network: Any) -> Iterator[Reply]:
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
    for first in range(0, len(rows), request.batch):
        part = rows[first : first + request.batch]
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


def by_vllm(model: str, device: str) -> Iterator[Reply]:
    """The model in vLLM, whose Python runs this program then."""
    request = Request.heard()
    words = request.tokenizer or model
    check_model(Path(model), Path(words))
    os.environ |= QUIET
    vllm: Any = __import__("vllm")
    # generation_config: or what a request leaves out is the model's own.
    fixed = {"load_format": "safetensors", "generation_config": "vllm", "trust_remote_code": False}
    engine = vllm.LLM(model=model, tokenizer=words, **(request.vllm_args | fixed))
    yield READY
    stops = ends(Path(model))
    for first in range(0, len(request.prompts), CONCURRENCY):
        part = request.prompts[first : first + CONCURRENCY]
        sampling = [
            vllm.SamplingParams(
                n=request.samples, temperature=request.temperature, max_tokens=request.max_tokens,
                seed=request.seed_of(first + at), stop_token_ids=stops,
            )
            for at in range(len(part))
        ]  # fmt: skip
        outputs = engine.chat(part, sampling, use_tqdm=False)
        for index, output in enumerate(outputs, first):
            made = [{"text": one.text, "truncated": one.finish_reason == "length"} for one in output.outputs]
            tokens = sum(len(one.token_ids) for one in output.outputs)
            yield {"index": index, "completions": made, "tokens": tokens}


def by_endpoint(model: str, device: str) -> Iterator[Reply]:
    """A model that somebody else serves by OpenAI's chat completions; the client retries what may pass."""
    import openai

    request = Request.heard()
    client = openai.OpenAI(
        base_url=request.base_url, api_key=request.key or "none", max_retries=4, timeout=300,
        # No proxy: a server of this machine is asked, too. Certificates are the system's.
        http_client=openai.DefaultHttpxClient(trust_env=False, verify=ssl.create_default_context()),
    )  # fmt: skip
    yield READY

    def completed(index: int) -> Reply:
        reply: Reply = {"index": index, "completions": [], "tokens": 0}
        while wanted := request.samples - len(reply["completions"]):  # some servers ignore n
            answer = client.chat.completions.create(
                model=model, messages=request.prompts[index], n=wanted, temperature=request.temperature, top_p=1.0,
                max_tokens=request.max_tokens, seed=request.seed_of(index, wanted),
            )  # fmt: skip
            if not 1 <= len(answer.choices) <= wanted:
                raise ValueError(f"{len(answer.choices)} completions instead of {wanted}")
            reply["completions"] += [
                {"text": str(one.message.content or ""), "truncated": one.finish_reason == "length"}
                for one in answer.choices
            ]
            reply["tokens"] += int(answer.usage.completion_tokens)
        return reply

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        under_way = {pool.submit(completed, index): index for index in range(len(request.prompts))}
        for done in as_completed(under_way):
            try:
                yield done.result()
            except (openai.OpenAIError, TypeError, LookupError, AttributeError, ValueError) as why:
                # What it said may be no answer.
                words = f"{type(why).__name__}: {why}: {why.__cause__ or ''}".rstrip(": ")
                yield {"index": under_way[done], "error": words.replace(request.key or "\0", "[key]")}


BACKENDS = {"transformers": by_transformers, "vllm": by_vllm, "openai": by_endpoint}

if __name__ == "__main__":
    sys.exit(main())
