"""LiteLLM, loaded late and quietly, with a deadline on every request."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import importlib
import logging
import os
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from environments.plugins import Refused
from tasks.system import interrupt
from tasks.system.home import install_extra

POLL_SECONDS = 0.1
"""Seconds until a signal to end is seen."""


@functools.cache
def litellm() -> Any:
    """The module `litellm`, without its downloads, its prints and its retries.

    Not typed: its sources are larger than all of ours, and it is an optional extra.

    Raises:
        Refused: it is not installed.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it downloads its price list
    try:
        module: Any = importlib.import_module("litellm")
    except ModuleNotFoundError as missing:
        raise Refused(
            f"asking a language model needs the package {missing.name!r}: {install_extra('llm')}"
        ) from missing
    module.suppress_debug_info = True
    module.drop_params = True  # a temperature that a model does not take is no reason to fail
    module.num_retries = 0
    module.disable_aiohttp_transport = True  # httpx ends with its request; aiohttp's sessions stay open
    for kind in ("callbacks", *(f"{when}_callback" for when in ("input", "success", "failure", "service"))):
        setattr(module, kind, [])
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return module


def completed(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """The result of the work, cancelled when the time is over.

    Raises:
        TimeoutError: it was cut off.
        KeyboardInterrupt: this process is asked to end.
        Exception: whatever the work raises.
    """
    deadline = time.monotonic() + seconds
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        while not future.done():
            interrupt.check()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer within {seconds:.0f} s")
            concurrent.futures.wait([future], timeout=min(POLL_SECONDS, left))
        return future.result()
    finally:
        future.cancel()  # closes its connection: a server that trickles is not listened to any longer


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all requests: open connections belong to the loop that opened them."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="nightshift-llm", daemon=True).start()
    return loop


def provider(model: str) -> str | None:
    """The provider of a model by its name; None where the name does not tell it."""
    library = litellm()
    try:
        return str(library.get_llm_provider(model)[1])
    except library.BadRequestError:
        return None


def is_provider(name: str) -> bool:
    """Whether LiteLLM has a provider of this name."""
    return name in {str(getattr(one, "value", one)) for one in litellm().provider_list}


def missing_keys(model: str) -> tuple[str, ...]:
    """The variables of which one must hold the key of the model's provider, when none does."""
    missing = tuple(litellm().validate_environment(model)["missing_keys"])
    # Providers with other variables (AWS, Google) may keep a login in a file.
    return missing if all(name.endswith("_API_KEY") for name in missing) else ()


def price(model: str, input_tokens: int, output_tokens: int) -> float | None:
    """The provider's price of so many tokens in USD; None where LiteLLM does not know it."""
    library = litellm()

    def usd(given: int, got: int) -> float:
        return float(sum(library.cost_per_token(model=model, prompt_tokens=given, completion_tokens=got)))

    try:
        # A model on its list without a price would seem to be free.
        return usd(input_tokens, output_tokens) if usd(1, 1) else None
    except Exception:  # noqa: BLE001 (it raises several kinds, a bare Exception among them, all for an unknown model)
        return None


def reasons(model: str) -> bool:
    """Whether it is known for thinking before it answers, in tokens that count as output."""
    return bool(litellm().supports_reasoning(model=model))


def count(model: str, text: str | Sequence[Mapping[str, str]]) -> int:
    """About how many tokens a text or some messages have."""
    given = {"text": text} if isinstance(text, str) else {"messages": list(text)}
    return int(litellm().token_counter(model=model, **given))
