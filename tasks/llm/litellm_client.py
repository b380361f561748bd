"""LiteLLM, loaded late and quietly: its router asks again after outages and rate limits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import importlib
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from environments.plugins import Refused
from tasks.system import interrupt

if TYPE_CHECKING:
    from tasks.llm.account import Account

RETRIES = 3
"""Further tries after what may pass: outages, rate limits, lost connections. The router waits longer before each."""
NO_KEY = "none"
"""The key for an endpoint that needs none: the client requires one."""
POLL_SECONDS = 0.1
"""Seconds until a signal to end is seen."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@functools.cache
def litellm() -> Any:
    """The module `litellm`, without its downloads and its prints. Not typed: it is an optional extra.

    Raises:
        Refused: it is not installed.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it downloads its price list
    try:
        module: Any = importlib.import_module("litellm")
    except ModuleNotFoundError as missing:
        needs = f"asking a language model needs the package {missing.name!r}: pip install 'nightshift-rl[llm]'"
        raise Refused(needs) from missing
    module.suppress_debug_info = True
    module.disable_hf_tokenizer_download = True
    module.drop_params = True  # a temperature that a model does not take is no reason to fail
    module.disable_aiohttp_transport = True  # httpx ends with its request; aiohttp's sessions stay open
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return module


def completion(account: Account, messages: Sequence[Message]) -> Any:
    """The model's reply, asked for again after what may pass, all within the account's time.

    Raises:
        TimeoutError: there is none in time.
        KeyboardInterrupt: this process is asked to end.
        Exception: whatever LiteLLM raises when there is no reply.
    """
    request = _router(account).acompletion(
        model=account.model,
        messages=[asdict(message) for message in messages],
        temperature=account.temperature,
        max_tokens=account.answer_tokens,
    )
    # Cancelled at the deadline, which closes its connection: a server that trickles is not listened to any longer.
    future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(request, account.answer_seconds), _loop())
    try:
        while not future.done():
            interrupt.check()
            concurrent.futures.wait([future], timeout=POLL_SECONDS)
        return future.result()
    finally:
        future.cancel()


@functools.lru_cache(maxsize=16)
def _router(account: Account) -> Any:
    """A router with the one model, since LiteLLM waits between its tries only there."""
    # Without a key of ours LiteLLM takes the usual variable's, which belongs to the provider's own endpoint.
    no_key = NO_KEY if account.base_url else None
    model = {
        "model": account.model,
        "api_base": account.base_url,
        "api_key": account.key.get_secret_value() if account.key else no_key,
        "timeout": account.answer_seconds,
        "max_retries": 0,  # the client's own, below the router's
    }
    return litellm().Router(
        [{"model_name": account.model, "litellm_params": model}], num_retries=RETRIES, disable_cooldowns=True
    )


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all requests: open connections belong to the loop that opened them."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="nightshift-llm", daemon=True).start()
    return loop


def count(model: str, messages: Sequence[Message]) -> int:
    """About how many tokens some messages have."""
    return int(litellm().token_counter(model=model, messages=[asdict(message) for message in messages]))
