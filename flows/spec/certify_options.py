"""The options of `certify`, each declared once, as those of a campaign are (flows/spec/options.py).

Made from them: the parameters of the flow and its form, the flags of the command, and their table in
docs/command-line.md. This module imports nothing heavy.
"""

from typing import Annotated

from flows.spec.options import Declared, Option, declared

MULTIPLE = r"\d{1,3}(\.\d{1,3})?x"
"""A training budget in that of the environment."""


# fmt: off
class CertifyOptions:
    """What a certificate after the end of a campaign may be asked for."""

    on: Annotated[list[str], Option(
        help="Other environments to certify in, in place of the campaign's own, to see whether the champion wins "
        "there too.",
    )] = []  # noqa: RUF012
    runs: Annotated[int | None, Option(
        help="Fresh runs of each arm at most. Default: as at the end of a campaign.",
        bounds={"ge": 2, "le": 100},
    )] = None
    budget: Annotated[str, Option(
        help="Training budget of every run, as a multiple of the environment's, such as 4x or 0.5x, to see "
        "whether the gain holds for longer. Default: the environment's.",
        schema={"pattern": rf"^$|^{MULTIPLE}$"},
    )] = ""
# fmt: on


CERTIFY: dict[str, Declared] = {each.name: each for each in declared(CertifyOptions)}
