"""Trainings on other machines: the settings of an environment whose trainer is `http`, `basilica` or `modal`.

Each trainer reads the section of its own name, as `[http]`; tasks/remote does what they say.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, model_validator

DAY = 86_400
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _plain(url: str) -> str:
    """An address without a login, or nothing. Raises ValueError: it is neither."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("must begin with http:// or https:// and a host")
    if parts.username or parts.password:
        raise ValueError("holds a user name or password: save a block with the address and a token instead")
    return url


Url = Annotated[str, Field(max_length=400), AfterValidator(_plain)]


class Address(BaseModel, frozen=True, extra="forbid", hide_input_in_errors=True):
    """Where an endpoint is, and what proves who asks."""

    url: Annotated[Url, Field(min_length=1)]
    token: str = Field(default="", repr=False)

    @model_validator(mode="after")
    def _is_told_to_nobody_else(self) -> Address:
        parts = urlsplit(self.url)
        if self.token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError("url begins with http://, which sends the token readable by everybody: use https://")
        return self


class RemoteSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What every remote trainer needs to know. (seconds)"""

    ready_seconds: float = Field(900, gt=0, le=DAY, description="Longest wait for a machine, until the trial runs.")
    poll_seconds: float = Field(1, ge=0.05, le=60, description="Interval of questions about a running trial.")
    answer_seconds: float = Field(20, gt=0, le=300, description="Longest wait for one answer.")
    away_seconds: float = Field(300, gt=0, le=DAY, description="Longest time without an answer, till it is lost.")
    lease_seconds: float = Field(
        1800, gt=0, le=7 * DAY, description="After so long without a question the other machine ends the trial itself."
    )
    usd_per_second: float = Field(0, ge=0, le=1, description="Price of the other machine, until the teardown.")
    gpu_count: int = Field(0, ge=0, le=64, description="GPUs of one trial; 0: as the environment says.")


class HttpEndpoint(RemoteSettings):
    """An endpoint of your own that takes trials by HTTP (docs/other-machines.md)."""

    url: Url = Field("", description="Its address, if it asks for no login.")
    block: str = Field("", pattern=r"^[a-z0-9-]*$", max_length=100, description="Saved Secret with address and token.")

    @model_validator(mode="after")
    def _has_one_address(self) -> HttpEndpoint:
        if bool(self.url) == bool(self.block):
            raise ValueError("give either url, or block with the name of a saved block")
        return self


class Deployed(RemoteSettings):
    """A cloud in which an endpoint is deployed for each trial, from an image that serves the protocol."""

    image: str = Field(
        pattern=r"^[A-Za-z0-9_./:@-]+$", max_length=300, description="Container image that serves the protocol."
    )
    port: int = Field(8400, ge=1, le=65_535, description="Port on which the image serves.")
    gpu: str = Field("", pattern=r"^[A-Za-z0-9_-]*$", max_length=40, description="GPU, as the cloud names it.")
    cpu: float = Field(2, gt=0, le=1024, description="Processor cores of one trial.")
    memory_gb: float = Field(8, gt=0, le=65_536, description="Memory of one trial, in GiB.")
    usd_per_second: float = Field(ge=0, le=1, description="Price of such a machine, until the teardown.")


class ModalSandbox(Deployed):
    """A sandbox at Modal (docs/other-machines.md)."""

    app: str = Field(
        "nightshift", pattern=r"^[A-Za-z0-9_.-]+$", max_length=60, description="App to which sandboxes belong."
    )
    command: tuple[str, ...] = Field((), description="Command of the container; empty: the image's own.")


SECTIONS: dict[str, type[RemoteSettings]] = {"http": HttpEndpoint, "basilica": Deployed, "modal": ModalSandbox}
"""The settings of each remote trainer."""
