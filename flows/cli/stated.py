"""What `run` and `resume` were given: a spec.toml or an environment, and options over it, as the flow's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.cli import consent
from flows.cli.set_option import parse_settings
from flows.spec.spec import Spec, laid_over, lasting, read_spec, spread

STDIN = "/dev/stdin"
"""The spec.toml of a detached campaign: its parent writes it."""


def stated(environment: str | None, *, settings: list[str], trust: bool = False, **given: Any) -> dict[str, Any]:
    """The parameters of the flow that the command line gives; those left out are absent.

    Raises:
        Refused: an option or a value of the file is invalid, or nobody agrees to what the file asks for.
    """
    over = spread({**given, **parse_settings(settings)})
    Spec.of("command line", environment="any", **over)
    if environment is None:
        return over
    if not environment.endswith((".toml", STDIN)):
        return {"environment": lasting(environment), **over}
    base = read_spec(Path(environment))
    consent.ask_about_spec(base, Path(environment), trust)
    return laid_over(base, over)
