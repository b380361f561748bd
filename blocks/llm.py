"""The Prefect Block of the language model: its name, endpoint, credentials and prices.

Saved once; campaigns whose proposer needs a model and names none read it:

    LLM(models=["anthropic/claude-sonnet-4-5"], key_variable="ANTHROPIC_API_KEY").save("nightshift")
"""

from __future__ import annotations

from typing import Self

from prefect.blocks.core import Block
from pydantic import Field, SecretStr, model_validator

from blocks.model_settings import ModelSettings


class LLM(ModelSettings, Block):
    """The language model that proposes: its name, endpoint, credentials and prices."""

    _block_type_name = "Nightshift LLM"

    models: list[str] = Field(min_length=1)
    """Names of the models, each with its provider, at least one. A proposer with one model uses the first."""
    key: SecretStr | None = None
    """The key."""

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if self.key is not None and self.key_variable is not None:
            raise ValueError("key and key_variable are both given: give the one that holds the key")
        return self
