"""What a page may show to others: texts without secrets, and without the name of the user's own folder."""

from __future__ import annotations

import os
import re
import shlex

from pydantic import TypeAdapter

from tasks.system.redact import Scrubber, Secret, known_secrets, without_passwords
from tasks.trial import History

HISTORY = TypeAdapter(History)


def shareable(text: str) -> str:
    """The text without secrets, and with `~` for the user's own folder, whose name may be a person's."""
    own = _own_folder()
    return without_passwords(re.sub(rf"(?<![\w.~-]){re.escape(own)}(?![\w.-])", "~", text) if own else text)


def without_secrets(history: History) -> History:
    """The history with `[secret NAME]` in place of each secret, before a long value is cut in the middle of one."""
    scrubber = Scrubber([Secret(re.sub(r"\W", "_", secret.name), secret.form) for secret in known_secrets()])
    shown = scrubber.feed(HISTORY.dump_json(history)) + scrubber.flush()
    return HISTORY.validate_json(shown) if scrubber.found else history


def typed(source: str) -> str:
    """An environment's name or path for a shell; one below the user's own folder begins with `~`."""
    own = f"{_own_folder()}/"
    within = own != "/" and source.startswith(own)
    return f"~/{shlex.quote(source.removeprefix(own))}" if within else shlex.quote(source)


def _own_folder() -> str:
    """HOME without a slash at its end; empty where it is unset or the root."""
    return os.environ.get("HOME", "").rstrip("/")
