"""What a saved block and a proposer's options both say of a language model. It loads no Prefect, which takes long."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator


class ModelSettings(BaseModel, hide_input_in_errors=True, use_attribute_docstrings=True):
    """Where a language model is, who we are there, and how it is asked."""

    base_url: str | None = Field(default=None, pattern="^https?://[^/]")
    """Address of an OpenAI-compatible endpoint in place of the provider's. A key is sent there only if one is named."""
    key_variable: str | None = Field(default=None, pattern=r"^[A-Za-z_]\w*$")
    """Environment variable that holds the key, never the key itself; without any key, the provider's usual one."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sampling temperature. Default: the provider's."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of one answer, thoughts included. Default: 8192, or 32768 for a model that is known to reason."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Most seconds for one answer, all tries together. Default: 300, in proportion more beyond 8192 tokens."""
    usd_per_million_input: float | None = Field(default=None, ge=0)
    """USD per million input tokens, where LiteLLM knows no price."""
    usd_per_million_output: float | None = Field(default=None, ge=0)
    """USD per million output tokens, where LiteLLM knows no price."""

    @model_validator(mode="after")
    def _has_both_prices(self) -> Self:
        given, got = self.usd_per_million_input, self.usd_per_million_output
        if (given is None) != (got is None):
            raise ValueError(f"prices are {given} (input) and {got} (output): give both, or neither")
        return self
