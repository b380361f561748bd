"""Isolation: what is found out about this machine is true, and a machine that only looks confined is seen through."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.sandbox import isolation
from tasks.sandbox.confinement import LEVELS, Level
from tasks.sandbox.isolation import Finding, Isolation, choose, findings


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    """Findings are kept for the life of a process; what a test finds is its own."""
    findings.cache_clear()
    yield
    findings.cache_clear()


def found(level: Level) -> Finding:
    return next(finding for finding in findings() if finding.level == level)


def put_first_on_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let `script`, a Python program, be this machine's bwrap."""
    folder.mkdir()
    bwrap = folder / "bwrap"
    bwrap.write_text(f"#!{sys.executable}\nimport os, sys\n{script}")
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_every_level_is_probed_best_first_and_a_level_that_does_not_work_says_why() -> None:
    assert tuple(finding.level for finding in findings()) == LEVELS
    assert all(finding.works == (finding.why == "") for finding in findings())
    assert found("none").works


def test_the_probes_run_once_for_each_process() -> None:
    assert findings() is findings()


def test_auto_is_the_best_level_that_works_and_a_level_that_works_can_be_asked_for() -> None:
    working = [finding.level for finding in findings() if finding.works]
    assert choose("auto") == working[0]
    assert [choose(level) for level in working] == working


def test_a_level_that_nobody_has_heard_of_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Refused, match=r"'chroot'.* auto, bwrap, landlock, none"):
        choose("chroot")


def test_without_bubblewrap_on_the_path_the_level_is_refused_and_auto_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found("bwrap").why == "bubblewrap is not installed (Debian, Ubuntu, Fedora: package bubblewrap)"
    with pytest.raises(Refused, match=r"'bwrap'.*not installed"):
        choose("bwrap")
    assert choose("auto") == ("landlock" if found("landlock").works else "none")


def test_a_bubblewrap_that_fails_is_found_out_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_first_on_the_path(tmp_path / "bin", monkeypatch, "sys.exit('bwrap: no permission to make a namespace')")
    assert found("bwrap") == Finding("bwrap", False, "bwrap: no permission to make a namespace")
    with pytest.raises(Refused, match=r"'bwrap'.*no permission"):
        choose("bwrap")


@pytest.mark.parametrize("status", [0, 7])
def test_a_bubblewrap_that_never_runs_the_program_is_found_out_whatever_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    put_first_on_the_path(tmp_path / "bin", monkeypatch, f"sys.exit({status})")
    assert found("bwrap") == Finding("bwrap", False, f"a program run at it ended with status {status}")


def test_a_bubblewrap_that_cannot_be_executed_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_first_on_the_path(tmp_path / "bin", monkeypatch, "")
    (tmp_path / "bin/bwrap").write_text("#!/nonexistent/interpreter\n")
    assert found("bwrap").why.startswith("cannot start ")
    assert "No such file or directory" in found("bwrap").why


def test_a_bubblewrap_that_runs_the_program_without_a_sandbox_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = "last = len(sys.argv) - sys.argv[::-1].index('--')\nos.execv(sys.argv[last], sys.argv[last:])\n"
    put_first_on_the_path(tmp_path / "bin", monkeypatch, last)
    assert found("bwrap") == Finding("bwrap", False, "it can read files that it was not given")


def test_a_bubblewrap_that_leaves_the_network_open_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not found("bwrap").works:
        pytest.skip(f"no bubblewrap to take the network namespace out of: {found('bwrap').why}")
    findings.cache_clear()
    real = shutil.which("bwrap")
    online = f"os.execv({real!r}, [word for word in sys.argv if word != '--unshare-net'])\n"
    put_first_on_the_path(tmp_path / "bin", monkeypatch, online)
    assert found("bwrap") == Finding("bwrap", False, "it can reach the network")


def test_a_kernel_without_landlock_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "landlock_version", lambda: 0)
    assert found("landlock").why.startswith("this kernel has no Landlock (Linux 5.13 or later")
    with pytest.raises(Refused, match=r"'landlock'.*kernel"):
        choose("landlock")


def test_on_a_processor_without_a_filter_only_the_level_without_a_sandbox_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_first_on_the_path(tmp_path / "bin", monkeypatch, "")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(isolation, "landlock_version", lambda: 1)
    why = "there is no system call filter for this kind of processor"
    assert [finding.why for finding in findings()] == [why, why, ""]
    assert choose("auto") == "none"


@pytest.mark.parametrize("level", ["bwrap", "landlock"])
def test_what_is_not_on_this_machine_cannot_be_given(tmp_path: Path, level: Level) -> None:
    """It may be on the machine that the campaign was asked for on."""
    with pytest.raises(Refused, match=rf"readable: .*{tmp_path}/prime-rl.*{platform.node()}"):
        isolation.check_given(level, tmp_path / "runs", (tmp_path / "prime-rl",))


def test_nothing_of_a_probe_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert found("none").works and findings()
    assert list(tmp_path.glob("nightshift-probe-*")) == []


@pytest.mark.parametrize(
    ("level", "allowed", "edit", "may"),
    [
        ("bwrap", False, "diff", True),
        ("landlock", False, "diff", True),
        ("none", False, "diff", False),
        ("none", False, "", False),
        ("none", False, None, True),
        ("none", True, "diff", True),
    ],
)
def test_an_edited_program_runs_without_a_sandbox_only_where_that_was_allowed(
    level: Level, allowed: bool, edit: str | None, may: bool
) -> None:
    assert Isolation(level, allow_unsandboxed=allowed).may_run(edit) is may
