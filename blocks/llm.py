"""The Prefect Block of the language model: its name, endpoint, credentials and prices.

Saved once; campaigns whose proposer needs a model and names none read it:

    LLM(models=["anthropic/claude-sonnet-4-5"], key_variable="ANTHROPIC_API_KEY").save("nightshift")

Only append fields: their order is part of the schema that saved blocks are checked against.
"""

from __future__ import annotations

from typing import Self

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr, model_validator


class LLM(Block):
    """The language model that proposes: its name, endpoint, credentials and prices."""

    model_config = ConfigDict(hide_input_in_errors=True)
    _block_type_name = "Nightshift LLM"
    _block_type_slug = "nightshift-llm"
    _description = "The language model that proposes: its name, endpoint, credentials and prices."

    provider: str | None = Field(
        None, description="LiteLLM's name of the provider, if the models' names are without; not needed for a base URL."
    )
    models: list[str] = Field(
        min_length=1, description="Names of the models, at least one. A proposer with one model uses the first."
    )
    base_url: str | None = Field(
        None,
        pattern="^https?://[^/]",
        description="Address of an endpoint other than the provider's own, such as vLLM, llama.cpp or Ollama.",
    )
    key: SecretStr | None = Field(None, description="The key.")
    key_variable: str | None = Field(
        None,
        pattern=r"^[A-Za-z_]\w*$",
        description="Environment variable with the key; without any key, the provider's usual one.",
    )
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature. Default: the provider's.")
    max_output_tokens: int | None = Field(
        None,
        ge=1,
        description="Most tokens of one answer, thoughts included. Default: 8192, or 32768 for models known to reason.",
    )
    timeout_seconds: float | None = Field(
        None, gt=0, description="Most seconds for one answer, retries included; 300 or more if left out."
    )
    usd_per_million_input: float | None = Field(
        None, ge=0, description="USD per million input tokens, where LiteLLM knows no price."
    )
    usd_per_million_output: float | None = Field(
        None, ge=0, description="USD per million output tokens, where LiteLLM knows no price."
    )

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if self.key is not None and self.key_variable is not None:
            raise ValueError("key and key_variable are both given: give the one that holds the key")
        prices = (self.usd_per_million_input, self.usd_per_million_output)
        if (prices[0] is None) != (prices[1] is None):
            raise ValueError(f"prices are {prices[0]} (input) and {prices[1]} (output): give both, or neither")
        return self
