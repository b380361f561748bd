"""What a page may show to others: texts without secrets, and without the name of the user's own folder."""

from __future__ import annotations

import os
import re

from pydantic import TypeAdapter

from tasks.system.redact import Secret, known_secrets, scrub, without_passwords
from tasks.trial import History

HISTORY = TypeAdapter(History)


def shareable(text: str) -> str:
    """The text without secrets, and with `~` for the user's own folder, whose name may be a person's."""
    own = os.environ.get("HOME", "").rstrip("/")  # empty where it is unset or the root
    return without_passwords(re.sub(rf"(?<![\w.~-]){re.escape(own)}(?![\w.-])", "~", text) if own else text)


def without_secrets(history: History) -> History:
    """The history with `[secret NAME]` in place of each secret, before a long value is cut in the middle of one."""
    secrets = [Secret(re.sub(r"\W", "_", secret.name), secret.form) for secret in known_secrets()]
    stored = HISTORY.dump_json(history)
    shown = scrub(stored, secrets)
    return history if shown == stored else HISTORY.validate_json(shown)
