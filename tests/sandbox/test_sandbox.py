"""What the sandbox does when the machine changes under it, and what no view of a trial holds."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from environments.limits import Limits
from environments.plugins import Refused
from tasks.sandbox import cgroup, confinement, isolation
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.program import CannotStart, Program, Stopped
from tasks.store.ledger import Ledger
from tasks.system.home import home
from tests.support.levels import SANDBOXED
from tests.support.processes import NAP, SLEEP, alive, wait_for
from tests.support.sandboxed import answers


def program(folder: Path, level: Level, *command: str) -> Program:
    log = folder / "log"
    view = VisiblePaths((folder,), ())
    return Program(command, cwd=folder, log=log, marker="sandbox/1", level=level, view=view, limits=Limits())


@pytest.mark.skipif("bwrap" not in SANDBOXED or os.geteuid() != 0, reason="only root changes its user, in bubblewrap")
def test_a_device_in_a_folder_of_its_own_can_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "GPU_DEVICES", ("net/*",))  # as dri/renderD128 and nvidia-caps/nvidia-cap1 are
    code = "import json, os\nprint(json.dumps(os.path.exists('/dev/net/tun')))"
    there = any(Path("/dev").glob("net/tun"))
    assert answers(tmp_path, "bwrap", code, view=VisiblePaths((), (), gpu=True)) is there


def test_with_bubblewrap_gone_nothing_is_run_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\n/usr/bin/id > ran\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStart, match=r"bwrap.*PATH"):
        program(tmp_path, "bwrap", "python", "-V")
    assert not (tmp_path / "ran").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bwrap", "log"]


@pytest.mark.skipif(cgroup.find() is None, reason="this user cannot make control groups here")
def test_a_control_group_that_cannot_be_made_whole_is_taken_back() -> None:
    groups = cgroup.find()
    assert groups is not None
    with pytest.raises(FileNotFoundError):
        cgroup.Cgroups(1, groups.memory, Path("/nonexistent")).make(2**30, 64)
    assert not list(groups.memory.glob(f"nightshift-{os.getpid()}-*"))


@pytest.mark.skipif(cgroup.find() is None, reason="without control groups a process that hides is not found")
@pytest.mark.parametrize("level", ["landlock", "none"])
def test_with_a_killed_keeper_what_threw_its_marker_away_goes_too(tmp_path: Path, level: Level) -> None:
    code = f"import subprocess, time\nsubprocess.Popen({SLEEP.split()}, start_new_session=True, env={{}})\n{NAP}"
    with program(tmp_path, level, "python", "-c", code) as started:
        wait_for(lambda: alive(SLEEP))
        os.kill(started.process.pid, signal.SIGKILL)
        with pytest.raises(Stopped, match="killed"):
            wait_for(lambda: started.poll(0.05) is not None)
        assert not alive(SLEEP)


def test_no_view_holds_the_private_keys_of_the_machine(tmp_path: Path) -> None:
    given = [Path(path) for path, _ in confinement.landlock(VisiblePaths((), (), network=True), tmp_path)]
    for private in ("/etc/ssl/private", "/etc/pki/tls/private", "/etc/shadow", "/etc/ssh"):
        assert not [path for path in given if Path(private).is_relative_to(path)]


@pytest.mark.skipif("landlock" not in SANDBOXED, reason="this kernel has no Landlock")
def test_a_program_under_landlock_hears_nothing_of_other_folders(tmp_path: Path) -> None:
    code = (
        "import ctypes, json, os\n"
        "libc = ctypes.CDLL(None)\n"
        f"print(json.dumps(libc.inotify_add_watch(libc.inotify_init(), {os.fsencode(tmp_path)!r}, 0xfff)))"
    )
    assert answers(tmp_path, "landlock", code) == -1


def test_a_home_among_the_systems_files_is_refused() -> None:
    with pytest.raises(Refused, match=r"/usr/share/nightshift.* /usr,"):
        isolation.check_given("bwrap", Path("/usr/share/nightshift"), ())
    isolation.check_given("bwrap", home(), ())


@pytest.mark.parametrize("listed", [".", "night-1/trials", "..", "/proc/self"])
def test_what_would_show_other_trials_or_processes_is_not_given(listed: str) -> None:
    """As `readable` of an environment; without a sandbox there is nothing to give."""
    with pytest.raises(Refused, match="readable: "):
        isolation.check_given("landlock", home(), (home() / listed,))
    isolation.check_given("none", home(), (home() / listed,))


@pytest.mark.skipif(confinement.owner("bwrap") is None, reason="an ordinary user's programs run as that user")
def test_data_that_only_root_can_read_is_refused_before_anything_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with pytest.raises(Refused, match="owner"):
        isolation.check_given("bwrap", home(), (data,))
    isolation.check_given("landlock", home(), (data,))


def test_what_judges_draw_cannot_be_worked_out_from_a_training_seed(tmp_path: Path) -> None:
    """Two campaigns of one seed train alike, and are judged on other draws."""
    from tests.support.ledgers import created

    one, two = created(tmp_path, "one", seed=3), created(tmp_path, "two", seed=3)

    def drawn(ledger: Ledger, purpose: str) -> int:
        return ledger.seed(purpose, ledger.key(4))  # type: ignore[arg-type]

    assert drawn(one, "train") == drawn(two, "train") and drawn(one, "propose") == drawn(two, "propose")
    assert drawn(one, "search") != drawn(two, "search") and drawn(one, "control") != drawn(two, "control")
    assert drawn(one, "search") == drawn(Ledger.open("one"), "search") != drawn(one, "control")
    assert len(one.campaign.judge_key) == 32
