"""Isolation: what is found out about this machine is true, and a machine that only looks confined is seen through."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.sandbox import confinement, isolation
from tasks.sandbox.isolation import Isolation, choose, why_not, working
from tasks.system.home import home
from tests.support.levels import WORKING


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    """Findings are kept for the life of a process; what a test finds is its own."""
    why_not.cache_clear()
    yield
    why_not.cache_clear()


def put_first_on_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let `script`, a Python program, be this machine's bwrap."""
    folder.mkdir()
    bwrap = folder / "bwrap"
    bwrap.write_text(f"#!{sys.executable}\nimport os, sys\n{script}")
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_auto_is_the_best_level_that_works_and_a_level_that_works_can_be_asked_for() -> None:
    assert choose("auto") == working()[0] and working()[-1] == "none"
    assert [choose(level) for level in working()] == working()
    with pytest.raises(Refused, match=r"'chroot'.* auto, bwrap, landlock, none"):
        choose("chroot")


UNCONFINED = "last = len(sys.argv) - sys.argv[::-1].index('--')\nos.execv(sys.argv[last], sys.argv[last:])\n"
ONLINE = f"os.execv({shutil.which('bwrap')!r}, [word for word in sys.argv if word != '--unshare-net'])\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("sys.exit('bwrap: no permission to make a namespace')", "bwrap: no permission to make a namespace"),
        ("sys.exit(0)", "a program run at it ended with status 0"),
        (UNCONFINED, "it can read files that it was not given"),
        pytest.param(
            ONLINE, "it can reach the network",
            marks=pytest.mark.skipif("bwrap" not in WORKING, reason="no network namespace to be taken out"),
        ),
    ],
)  # fmt: skip
def test_a_bubblewrap_that_does_not_confine_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    """One that fails, never runs the program, runs it without a sandbox, or leaves the network open."""
    put_first_on_the_path(tmp_path / "bin", monkeypatch, script)
    assert why_not("bwrap") == why


def test_on_a_kernel_without_landlock_and_a_processor_without_a_filter_no_sandbox_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match=r"'bwrap'.*bubblewrap is not installed"):
        choose("bwrap")
    why_not.cache_clear()
    put_first_on_the_path(tmp_path / "bin", monkeypatch, "")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(isolation, "landlock_version", lambda: 0)
    assert "this kernel has no Landlock" in why_not("landlock")
    assert "no system call filter for this kind of processor" in why_not("bwrap")
    assert choose("auto") == "none"


@pytest.mark.parametrize("listed", [".", "night-1/trials", "..", "/proc/self", "~/.ssh", "/nowhere"])
def test_what_would_show_other_trials_processes_or_keys_or_is_not_there_is_not_given(listed: str) -> None:
    """As `readable` of an environment; without a sandbox there is nothing to give."""
    path = home() / Path(listed).expanduser()
    with pytest.raises(Refused, match="readable: "):
        isolation.check_given("landlock", home(), (path,))
    isolation.check_given("none", home(), (path,))


def test_a_home_among_the_systems_files_is_refused() -> None:
    with pytest.raises(Refused, match=r"/usr/share/nightshift.* /usr,"):
        isolation.check_given("bwrap", Path("/usr/share/nightshift"), ())
    isolation.check_given("bwrap", home(), ())


@pytest.mark.skipif(confinement.owner("bwrap") is None, reason="an ordinary user's programs run as that user")
def test_data_that_only_root_can_read_is_refused_before_anything_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with pytest.raises(Refused, match="owner"):
        isolation.check_given("bwrap", home(), (data,))
    isolation.check_given("landlock", home(), (data,))


def test_an_edited_program_runs_without_a_sandbox_only_where_that_was_allowed() -> None:
    assert all(Isolation(level).may_run("diff") for level in ("bwrap", "landlock"))  # type: ignore[arg-type]
    assert Isolation("none").may_run(None) and not Isolation("none").may_run("diff")
    assert not Isolation("none").may_run("") and Isolation("none", allow_unsandboxed=True).may_run("diff")
