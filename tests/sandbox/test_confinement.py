"""Confinement: what bubblewrap and Landlock are told, and that a program then sees that and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import environments
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.program import CannotStart
from tests.support.levels import SANDBOXED
from tests.support.sandboxed import answers, run
from tests.support.toy import QUADRATIC, quadratic

CHECKOUT = Path(__file__).resolve().parents[2]
SYSTEM_GPU = [
    path for path in (Path("/dev/kmsg"), Path("/dev/loop0"), Path("/dev/hwrng"), Path("/dev/fuse")) if path.exists()
]
"""Devices that are no GPU's, but are as absent as one in a sandbox."""


def environment(tmp_path: Path, more: str) -> environments.Environment:
    folder = quadratic(tmp_path / "env", toml=more + QUADRATIC)
    (folder / "data").mkdir()
    (folder / "data/rows").write_text("given")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/rows").write_text("given too")
    return environments.load(folder)


@pytest.mark.parametrize("level", SANDBOXED)
def test_what_an_environment_lists_is_readable_and_nothing_beside_it(tmp_path: Path, level: Level) -> None:
    listed = environment(tmp_path, f"readable = ['data', '{tmp_path / 'shared/rows'}']\n")
    view = confinement.of(listed, (), ())
    assert view.readable == (tmp_path / "env/data", tmp_path / "shared/rows")
    paths = ["env/data/rows", "shared/rows", "env/judge.py", "env/environment.toml", "env/fit.py"]
    code = (
        "import json, pathlib\n"
        "def read(path):\n"
        "    try: return pathlib.Path(path).read_text()\n"
        "    except OSError: return None\n"
        f"print(json.dumps([read(path) for path in {[str(tmp_path / path) for path in paths]}]))\n"
    )
    assert answers(tmp_path, level, code, view=view) == ["given", "given too", None, None, None]


@pytest.mark.skipif(not SYSTEM_GPU, reason="this machine's /dev holds only what every program gets")
@pytest.mark.skipif("bwrap" not in SANDBOXED, reason="bubblewrap does not work here")
@pytest.mark.parametrize(("asked", "driver"), [(False, True), (True, False), (True, True)])
def test_a_gpu_is_there_only_when_it_is_given_and_proc_is_open_only_to_a_driver_that_names_threads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool, driver: bool
) -> None:
    monkeypatch.setattr(confinement, "GPU_DEVICES", tuple(path.name for path in SYSTEM_GPU))
    monkeypatch.setattr(confinement, "NAMES_THREADS", str(SYSTEM_GPU[0]) if driver else "/dev/nvidia*")
    code = (
        "import json, threading\n"
        "def write():\n"
        "    for path in (f'/proc/self/task/{threading.get_native_id()}/comm', '/proc/1/comm', '/proc/1/oom_score_adj',\n"
        "                 '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger'):\n"
        "        try: open(path, 'w').write('0')\n"
        "        except OSError: written.append(False)\n"
        "        else: written.append(True)\n"
        "written = []\n"
        "thread = threading.Thread(target=write)\n"
        "thread.start()\n"
        "thread.join()\n"
        f"print(json.dumps([__import__('os').path.exists({str(SYSTEM_GPU[0])!r}), *written]))\n"
    )
    written = answers(tmp_path, "bwrap", code, view=VisiblePaths((), (), gpu=asked))
    assert written == [asked, asked and driver, False, False, False, False]


def test_with_bubblewrap_gone_nothing_is_run_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\n/usr/bin/id > ran\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStart, match=r"bwrap.*PATH"):
        run(tmp_path, "bwrap", "pass")
    assert not (tmp_path / "workspace/ran").exists()


def test_no_view_holds_the_private_keys_of_the_machine(tmp_path: Path) -> None:
    given = [Path(path) for path, _ in confinement.landlock(VisiblePaths((), (), network=True), tmp_path)]
    for private in ("/etc/ssl/private", "/etc/pki/tls/private", "/etc/shadow", "/etc/ssh"):
        assert not [path for path in given if Path(private).is_relative_to(path)]
