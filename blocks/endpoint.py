"""The Prefect Block of an endpoint that trains: its address and login.

Saved once; environments with trainer `http` name it as `http.block`:

    TrainingEndpoint(url="https://train.example.org", token="...").save("my-gpus")

Only append fields: their order is part of the schema that saved blocks are checked against.
"""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr, model_validator

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TrainingEndpoint(Block):
    """An endpoint that trains: its address and login."""

    model_config = ConfigDict(hide_input_in_errors=True)
    _block_type_name = "Nightshift endpoint"
    _block_type_slug = "nightshift-endpoint"
    _description = "An endpoint that trains: its address and login."

    url: str = Field(description="Address of the endpoint.", examples=["https://train.example.org"])
    username: str | None = Field(default=None, description="User name, if the endpoint requires one.")
    password: SecretStr | None = Field(default=None, description="Password of the user.")
    token: SecretStr | None = Field(default=None, description="Bearer token, in place of a user and password.")

    @model_validator(mode="after")
    def _is_one_complete_identity(self) -> Self:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must begin with http:// or https:// and a host")
        if parts.username or parts.password:
            raise ValueError("url holds a user name or password: give them as username and password")
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together: give both or neither")
        if self.username is not None and self.token is not None:
            raise ValueError("give either username and password or a token, not both")
        has_login = self.username is not None or self.token is not None
        if has_login and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError("url begins with http://, which sends the login readable by everybody: use https://")
        return self
