"""Secrets, and characters that move a cursor or hide, are taken out of everything that leaves a trial.

Programs see none of the engine's variables, so this is a second defence, applied where a leak would be stored or sent
on. It knows the values themselves, not what a program could make of them.
"""

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import suppress
from mmap import mmap

from tasks.system.home import home_path, stored_login

SECRET_WORDS = frozenset(
    ("KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "AUTH")
)
PLACE_WORDS = frozenset({"SOCK", "FILE", "PATH", "DIR"})
"""A variable whose name ends in one of these holds a path."""
ORDINARY = frozenset({"disabled", "optional", "password", "postgres", "required", "safe.directory"})
"""Ordinary words among the values of such variables, which are left in the text."""
SHORTEST, SHORTEST_LINE = 8, 16
"""Characters of a secret, and of a line of a longer one, such as a private key: shorter ones would match by chance."""
URL_PASSWORD = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@"']*):([^\s/"'<>]+)@""")

SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")
"""Colours and moves of the cursor. Of any other sequence the control characters are taken out, and the rest is seen."""
UNUSUAL = re.compile(r"[^\t\n -~]")

_remembered: dict[tuple[str, str], None] = {}


def remember(name: str, value: str) -> None:
    """Redact this secret too, from now on in this process; `name` is shown in its place."""
    _remembered[name, value] = None


def known_secrets() -> dict[bytes, str]:
    """Every secret that this process holds with its name, and the lines of those with several; the longest first."""
    forms: dict[bytes, str] = {}
    for name, value in _values():
        value = value.strip()
        lines = (line for line in value.splitlines() if len(line) >= SHORTEST_LINE and not line.startswith("-----"))
        for form in (value, *lines):
            if len(form) >= SHORTEST and form.lower() not in ORDINARY:
                forms.setdefault(os.fsencode(form), name)
    return {form: forms[form] for form in sorted(forms, key=len, reverse=True)}


def secrets_in(data: bytes | mmap, secrets: Mapping[bytes, str]) -> dict[bytes, str]:
    """The secrets that the data holds; the longest first."""
    return {form: name for form, name in secrets.items() if data.find(form) >= 0}


def scrub(data: bytes, secrets: Mapping[bytes, str] | None = None) -> bytes:
    """The data with `[secret NAME]` in place of each secret."""
    here = secrets_in(data, known_secrets() if secrets is None else secrets)
    if not here:
        return data
    pattern = re.compile(b"|".join(map(re.escape, here)))
    return pattern.sub(lambda match: f"[secret {here[match[0]]}]".encode(errors="replace"), data)


def scrub_text(text: str) -> str:
    """The text with `[secret NAME]` in place of each secret; lone surrogates become `?`."""
    return scrub(text.encode(errors="replace")).decode(errors="replace")


def without_passwords(text: str) -> str:
    """The text with `[secret]` in place of the password of each URL, known or not, and scrubbed besides."""
    return scrub_text(URL_PASSWORD.sub(r"\1:[secret]@", text))


def clean(text: str) -> list[str]:
    """The lines of a program's output, safe to show: without control sequences, secrets and invisible characters. A
    carriage return ends a line too: overwritten text is shown, and nothing of ours can be overwritten.
    """
    lines = SEQUENCE.sub("", text).splitlines()
    shown = "\n".join(UNUSUAL.sub(_visible, line) for line in lines)
    # Removing characters may have completed a secret.
    return scrub_text(shown).split("\n") if shown else []


def quote(text: str, limit: int, lines: int) -> str:
    """Quote the last lines of a program's output in Markdown or a prompt: fenced, each marked with `| `, and of each
    the first `limit` characters. The fence is longer than any that the program printed.
    """
    every = clean(text)
    left_out = max(len(every) - lines, 0)
    kept = [capped(line, limit) for line in every[left_out:]]
    note = [f"[{left_out} line{'s' * (left_out != 1)} before this left out]"] if left_out else []
    fence = "`" * max(3, *(len(run) + 1 for line in kept for run in re.findall("`+", line)), 0)
    return "\n".join([fence, *note, *(f"| {line}" for line in kept), fence])


def one_line(text: str, limit: int) -> str:
    """What a program or another machine says in one line of bounded length, safe to show."""
    return capped(" ".join(" ".join(clean(text)).split()), limit)


def capped(line: str, limit: int) -> str:
    """The line's first `limit` characters, and how many more there were."""
    return line if len(line) <= limit else f"{line[:limit]} [{len(line) - limit} more characters]"


def _visible(match: re.Match[str]) -> str:
    """A character that shows itself as it is, a control character not at all, and any other by its number."""
    char = match[0]
    return char if char.isprintable() else "" if ord(char) < 0xA0 else f"<U+{ord(char):04X}>"


def _values() -> Iterator[tuple[str, str]]:
    """Names and values of the secrets; a value may come several times."""
    login = ""
    with suppress(PermissionError):  # the home is another user's
        login = stored_login(home_path())
    for name, value in (*os.environ.items(), ("PREFECT_API_AUTH_STRING", login)):
        if _is_secret(name, value):
            yield name, value
            if "AUTH" in name.upper().split("_"):  # a user:password
                yield name, value.partition(":")[2]
        for match in URL_PASSWORD.finditer(value):
            yield name, match[2]
            yield name, urllib.parse.unquote(match[2])
    yield from tuple(_remembered)


def _is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by its name, and not the path of a file with one."""
    words = name.upper().split("_")
    is_named = bool(SECRET_WORDS & set(words)) or words[-1].endswith(("PASSWORD", "PASSWD"))  # such as PGPASSWORD
    # A key may begin with a slash too.
    return is_named and words[-1] not in PLACE_WORDS and not (value.startswith("/") and os.path.lexists(value))
