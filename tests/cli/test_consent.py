"""What an environment or a spec asks for is shown, and nothing starts before somebody has agreed."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli.arguments import stated
from flows.spec import permissions
from tests.support.toy import QUADRATIC, nightshift, quadratic

ONLINE = "network = true\n" + QUADRATIC
WISH = "training uses the network"


def test_without_a_yes_nothing_starts_and_the_exit_code_says_so(tmp_path: Path, home: Path) -> None:
    done = nightshift("run", str(quadratic(tmp_path / "quad", toml=ONLINE)), "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert WISH in done.stderr and "say so once with --trust" in done.stderr
    assert not [path for path in home.iterdir() if path.name[0] != "."]


def test_a_yes_says_what_it_grants_and_is_remembered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(quadratic(tmp_path / "quad", toml=ONLINE))
    permissions.require_named(folder, {}, trust=True)
    assert WISH in capsys.readouterr().err
    permissions.require_named(folder, {}, trust=False)


def test_an_ordinary_problem_and_a_bundled_one_are_not_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    permissions.require_named(str(quadratic(tmp_path / "quad")), {}, trust=False)
    permissions.require_named("gsm8k", {}, trust=False)
    permissions.require_named("gymnasium", {"control.id": "this:Zen-v0"}, trust=False)
    assert capsys.readouterr().err == ""


def test_a_spec_beside_an_environment_cannot_leave_the_sandbox_without_a_yes(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad")
    spec = folder / "spec.toml"
    spec.write_text('environment = "."\n[advanced]\nisolation = "none"\n')
    with pytest.raises(Refused, match=r"without a sandbox.*--trust"):
        stated(str(spec), settings=[])
    stated(str(spec), settings=[], trust=True)
    assert stated(str(spec), settings=[])["environment"] == str(folder)
