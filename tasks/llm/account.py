"""Which language model is asked, where it is, and who we are there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr, ValidationError

from blocks.model_settings import ModelSettings
from environments.plugins import Refused, explain
from tasks.llm import litellm_client
from tasks.system import redact
from tasks.system.redact import one_line

if TYPE_CHECKING:
    from blocks.llm import LLM
    from tasks.proposing.brief import RemainingBudget

DEFAULT_BLOCK = "nightshift"
ANSWER_TOKENS, THINKING_TOKENS = 8_192, 32_768
"""Tokens of one answer where nothing else is stated."""
ANSWER_SECONDS = 300.0
"""For one answer where nothing else is stated; in proportion more for more than ANSWER_TOKENS."""
PROBE_SECONDS = 10.0
OLLAMA = "http://localhost:11434"


class ModelOptions(ModelSettings, frozen=True, extra="forbid"):
    """A proposer's options for its model. Missing ones come from a saved LLM block."""

    block: str | None = None
    """Name of a saved LLM block; without it and a model, the one called nightshift."""
    model: str | None = None
    """The model, as provider/name in LiteLLM's words. With a base URL the name alone will do."""


class Account(ModelOptions):
    """One model, ready to be asked."""

    model: str
    """LiteLLM's name of it, the provider included, such as `anthropic/claude-sonnet-4-5`."""
    key: SecretStr | None = None
    """None: the provider's usual variable; with `base_url`: no key."""

    @property
    def answer_tokens(self) -> int:
        """Most tokens of one answer. Thoughts count, so a model that is known for them has more."""
        if self.max_output_tokens is not None:
            return self.max_output_tokens
        library = litellm_client.litellm()
        known = library.model_cost.get(self.model) or library.model_cost.get(self.model.partition("/")[2]) or {}
        most = THINKING_TOKENS if library.supports_reasoning(model=self.model) else ANSWER_TOKENS
        return min(most, known.get("max_output_tokens") or most)

    @property
    def answer_seconds(self) -> float:
        """Most seconds for one answer, all tries together."""
        return self.timeout_seconds or ANSWER_SECONDS * max(1.0, self.answer_tokens / ANSWER_TOKENS)

    def usd(self, input_tokens: int, output_tokens: int, reply: Any = None) -> float | None:
        """The price of so many tokens in USD, by the stated prices or else the provider's; None when unknown.

        The provider's price list does not hold for another endpoint. A reply knows of tokens that a cache saved.
        """
        if self.usd_per_million_input is not None and self.usd_per_million_output is not None:
            return (input_tokens * self.usd_per_million_input + output_tokens * self.usd_per_million_output) / 1e6
        if self.base_url:
            return None
        library, tokens = litellm_client.litellm(), {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
        try:
            stated = library.completion_cost(completion_response=reply, model=self.model) if reply is not None else 0.0
            each = library.cost_per_token(model=self.model, **tokens)
        except Exception:  # noqa: BLE001 (several kinds, a bare Exception among them, all for an unknown model)
            return None
        return float(stated or sum(each)) or None  # one on its list without a price would seem to be free


def accounts(stated: ModelOptions) -> tuple[Account, ...]:
    """The models that a proposer may ask: what it states, laid over the saved block. The first is the one to ask.

    A block's key goes to the block's own address only, and its prices hold for its own models only. Refused where
    nothing says which model, the block cannot be read, or the variable for the key holds none.
    """
    name = stated.block or (None if stated.model else DEFAULT_BLOCK)
    block = _saved(name) if name else None
    if name and block is None:
        why = f"there is no LLM block {name!r}" if stated.block else "nothing says which language model to ask"
        raise Refused(
            f"{why}: give the option model, such as anthropic/claude-sonnet-4-5, or "
            f"save an LLM block called {name!r} on the Prefect server, whose address is PREFECT_API_URL"
        )
    values, models = _values(block), block.models if block else []
    is_there = block is not None and stated.base_url in (None, block.base_url)
    if not is_there or stated.model not in (None, *models):
        values = {name: value for name, value in values.items() if not name.startswith("usd_per_million")}
    values |= _values(stated)
    base_url = (values.get("base_url") or "").rstrip("/") or None
    key = _key(stated, block if is_there else None)
    return tuple(
        Account(**{**values, "model": full_name(one, base_url), "base_url": base_url, "key": key})
        for one in ([stated.model] if stated.model else models)
    )


def full_name(model: str, base_url: str | None) -> str:
    """LiteLLM's name of a model, with its provider; at a stated endpoint the default provider is `openai`."""
    first, slash, _ = model.partition("/")
    if not base_url or (slash and first in litellm_client.litellm().provider_list):
        return model
    return f"openai/{model}"


def check(account: Account, left: RemainingBudget) -> None:
    """Refuse a model that cannot be asked, without buying anything: provider, key, endpoint, the campaign's limits."""
    library = litellm_client.litellm()
    try:
        provider = library.get_llm_provider(account.model)[1]
    except library.BadRequestError as unknown:
        raise Refused(
            f"model {account.model!r} names no provider that LiteLLM knows: write provider/model, such as "
            f"openai/{account.model}, or give the base_url of your own endpoint"
        ) from unknown
    missing = library.validate_environment(account.model)["missing_keys"]
    ollama = (os.environ.get("OLLAMA_API_BASE") or OLLAMA) if provider.startswith("ollama") else None
    if url := account.base_url or ollama:
        _probe(account, url, provider in ("openai", *library.openai_compatible_providers))
    # Providers with other variables (AWS, Google) may keep a login in a file.
    elif account.key is None and missing and all(name.endswith("_API_KEY") for name in missing):
        raise Refused(
            f"model {account.model!r} needs a key, and {' or '.join(missing)} is not set: set it, or name the "
            "variable that holds the key with key_variable"
        )
    if left.usd is not None and account.usd(0, 1) is None:
        raise Refused(
            f"max_usd = {left.usd:g}, but the price of {account.model!r} is not known: state "
            "usd_per_million_input and usd_per_million_output (0 if it is free), or limit max_tokens instead"
        )


def _values(source: ModelSettings | None) -> dict[str, Any]:
    """The values for an account that are not None."""
    own = ModelSettings.model_fields.keys() - {"key_variable"}
    return source.model_dump(include=own, exclude_none=True) if source else {}


def _key(stated: ModelOptions, block: LLM | None) -> SecretStr | None:
    """The key, which the scrubber is told of; None without one."""
    name, value = stated.key_variable, ""
    if not name and block:
        name, value = ("LLM_KEY", block.key.get_secret_value()) if block.key else (block.key_variable, "")
    if not name:
        return None
    # A line break, which a file often ends with, cannot be sent, and the complaint would show the key.
    value = (value or os.environ.get(name, "")).strip()
    if not value:
        raise Refused(f"key_variable = {name}, but {name} is empty or not set here: export {name}=..., or name another")
    redact.remember(name, value)
    return SecretStr(value)


def _saved(name: str) -> LLM | None:
    """The LLM block of this name on the Prefect server that this process uses; None when there is none."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from blocks.llm import LLM

    api = PREFECT_API_URL.value() or os.environ.get("PREFECT_API_URL")
    if not api:
        return None
    try:
        # Prefect may have been imported before the address was set; it would start a server of its own.
        with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
            saved = client.read_block_document_by_name(name, LLM.get_block_type_slug()).data
        if unknown := saved.keys() - LLM.model_fields.keys() - {"block_type_slug"}:
            raise Refused(
                f"LLM block {name!r} has {', '.join(sorted(unknown))}, which there is no longer: save it without "
                "(models with their providers, limits as --max-usd and --max-tokens of the campaign)"
            )
        return LLM.model_validate(saved)
    except ObjectNotFound:
        return None
    except ValidationError as error:
        raise explain(error, f"LLM block {name!r}") from error
    except httpx.HTTPError as error:
        where = redact.without_passwords(api)
        raise Refused(f"LLM block {name!r} cannot be read from the Prefect server at {where} ({error})") from error


def _probe(account: Account, url: str, is_like_openai: bool) -> None:
    """See that the endpoint answers and, where it lists its models for a key as OpenAI's does, that it takes ours."""
    import httpx

    key = account.key.get_secret_value() if account.key else litellm_client.NO_KEY
    shown, login = f"base_url = {redact.without_passwords(url)}", {"Authorization": f"Bearer {key}"}
    try:
        status = httpx.get(f"{url}/models", headers=login, timeout=PROBE_SECONDS).status_code
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        why = one_line(str(error), 200) or type(error).__name__
        raise Refused(f"no language model answers at {shown} ({why}): start it, or correct the address") from error
    if status >= 500 or (is_like_openai and (status in (401, 403) or (status == 404 and "/v1" not in url))):
        raise Refused(
            f"the endpoint at {shown} answers {status} when asked for its models: correct the address (it often "
            "ends with /v1), name the variable that holds its key with key_variable, or wait until it is ready"
        )
