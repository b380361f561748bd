"""The Prefect Block for a language model: its name, endpoint, key and prices.

Saved once, and used by every campaign whose proposer needs a language model and names none:

    LLM(models=["anthropic/claude-sonnet-4-5"], key_variable="ANTHROPIC_API_KEY", max_usd=5).save("nightshift")

Fields are only ever appended: their order is part of the schema that saved blocks are checked against.
"""

from __future__ import annotations

import re
from typing import Self

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr, model_validator


class LLM(Block):
    """A language model: its name, endpoint, key and prices."""

    model_config = ConfigDict(hide_input_in_errors=True)
    _block_type_name = "Nightshift LLM"
    _block_type_slug = "nightshift-llm"

    provider: str | None = Field(
        default=None,
        description="What LiteLLM calls the provider, put before each model's name. Not needed where the names have "
        "it already, nor with a base URL that speaks OpenAI's protocol.",
        examples=["anthropic", "openai", "gemini", "ollama_chat"],
    )
    models: list[str] = Field(
        description="The models by name, at least one. A proposer that asks one model asks the first.",
        examples=[["claude-sonnet-4-5"]],
    )
    base_url: str | None = Field(
        default=None,
        description="Address of an endpoint other than the provider's own, such as vLLM, llama.cpp or Ollama.",
        examples=["http://127.0.0.1:8000/v1"],
    )
    key: SecretStr | None = Field(default=None, description="The key.")
    key_variable: str | None = Field(
        default=None,
        description="Name of the environment variable that holds the key, where campaigns run. Without it and a key, "
        "the provider's usual variable is read.",
        examples=["OPENAI_API_KEY"],
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Sampling temperature; the provider's own when left out."
    )
    max_output_tokens: int = Field(default=8192, ge=1, description="Most tokens of one answer.")
    timeout_seconds: float = Field(
        default=300, gt=0, description="Most seconds for one answer, all tries together."
    )
    usd_per_million_input: float | None = Field(
        default=None, ge=0, description="Price of a million input tokens, in USD, where LiteLLM knows none."
    )
    usd_per_million_output: float | None = Field(
        default=None, ge=0, description="Price of a million output tokens, in USD, where LiteLLM knows none."
    )
    max_usd: float | None = Field(default=None, gt=0, description="Most USD that one campaign may spend.")
    max_tokens: int | None = Field(
        default=None, gt=0, description="Most tokens that one campaign may use, input and output together."
    )

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if not self.models or not all(name.strip() for name in self.models):
            raise ValueError(f"models are {self.models!r}: name at least one, such as ['claude-sonnet-4-5']")
        if self.key is not None and self.key_variable is not None:
            raise ValueError("key and key_variable are both given: give the one that holds the key")
        if self.key_variable is not None and not re.fullmatch(r"[A-Za-z_]\w*", self.key_variable):
            # The value is not shown: it may be the key itself.
            raise ValueError(
                "key_variable is no name of a variable: give one, such as OPENAI_API_KEY, or use key"
            )
        if self.base_url is not None and not re.match(r"https?://[^/]", self.base_url):
            raise ValueError(f"base_url is {self.base_url!r}: begin it with http:// or https:// and a host")
        prices = (self.usd_per_million_input, self.usd_per_million_output)
        if (prices[0] is None) != (prices[1] is None):
            raise ValueError(
                f"prices are {prices[0]} (input) and {prices[1]} (output): give both, or neither"
            )
        return self
