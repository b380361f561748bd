"""The Prefect Block of the MLflow server that campaigns share: its address and credentials.

Saved once; campaigns without --tracking read it:

    Tracking(uri="https://mlflow.example.org", token="...").save("nightshift", overwrite=True)

Only append fields: their order is part of the schema that saved blocks are checked against.
"""

from __future__ import annotations

from typing import Self

from prefect.blocks.core import Block
from pydantic import Field, SecretStr, model_validator


class Tracking(Block):
    """The MLflow server: its address and credentials.

    Example:
        Load a stored tracking block:

        ```python
        from blocks.tracking import Tracking

        tracking = Tracking.load("BLOCK_NAME")
        ```
    """

    _block_type_name = "Nightshift tracking"
    _block_type_slug = "nightshift-tracking"
    _description = "The MLflow server: its address and credentials."

    uri: str = Field(
        description="Address of the MLflow server (http or https), a database such as "
        "sqlite:////abs/mlflow.db, or off.",
        examples=["http://127.0.0.1:5000"],
    )
    username: str | None = Field(default=None, description="User name, if the server requires one.")
    password: SecretStr | None = Field(default=None, description="Password of the user.")
    token: SecretStr | None = Field(
        default=None, description="Bearer token, for a server that takes one instead of a user and password."
    )

    @model_validator(mode="after")
    def _is_one_complete_identity(self) -> Self:
        # MLflow sends no credentials when half of a pair is missing, and prefers a pair to a token.
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together: give both or neither")
        if self.username is not None and self.token is not None:
            raise ValueError("give either username and password or a token, not both")
        return self
