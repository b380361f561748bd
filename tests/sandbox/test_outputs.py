"""What a program left in out/: counted, found fault with and digested, whatever it is."""

from __future__ import annotations

import os
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from environments.limits import Limits
from tasks.sandbox import outputs
from tasks.sandbox.reader import EditFailed, read
from tasks.system.file_trees import largest_member


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with a small checkpoint in it."""
    path = tmp_path / "trial" / "out"
    (path / "weights").mkdir(parents=True)
    (path / "weights" / "policy.pt").write_bytes(b"weights")
    (path / "progress.jsonl").write_text('{"ready": true}\n')
    return path


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda out: (out / "progress.jsonl").write_text("other reports"), True),
        (lambda out: (out / "weights/policy.pt").write_bytes(b"Weights"), False),
        (lambda out: (out / "weights/progress.jsonl").write_text(""), False),
    ],
)
def test_the_digest_changes_with_the_checkpoint_and_with_nothing_else(
    change: Callable[[Path], object], same: bool, out: Path
) -> None:
    before = outputs.checkpoint(out)
    change(out)
    assert (outputs.checkpoint(out) == before) is same


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "policy.pt/.."])
def test_a_link_that_may_lead_out_is_a_fault_and_one_that_stays_inside_is_not(target: str, out: Path) -> None:
    for number, inside in enumerate(("policy.pt", "../weights", "..", "nowhere")):
        (out / f"weights/{number}").symlink_to(inside)
    assert outputs.fault(out) is None
    (out / "weights/latest").symlink_to(target)
    assert f"link in out/ that may lead out of it ('weights/latest' -> {target!r})" in str(outputs.fault(out))


def test_a_link_is_never_followed_whatever_it_points_to(out: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("x" * 100_000)
    newest = outputs.newest(out)
    (out / "folder").symlink_to(tmp_path / "outside")
    (out / "file").symlink_to(tmp_path / "outside" / "file")
    digest = outputs.checkpoint(out)
    (tmp_path / "outside" / "file").write_text("another")
    os.utime(tmp_path / "outside" / "file", (4e9, 4e9))

    assert (outputs.checkpoint(out), outputs.newest(out)) == (digest, newest)
    assert outputs.excess(out, Limits(out_files=5, out_gb=50_000 / 2**30)) is None


def test_what_is_too_much_is_said_with_its_limit_and_a_file_with_nothing_in_it_costs_its_length(out: Path) -> None:
    assert outputs.excess(out, Limits(out_files=3)) is None
    assert "left more than 2 files and folders in out/" in str(outputs.excess(out, Limits(out_files=2)))
    assert "left more than 1e-06 GiB in out/" in str(outputs.excess(out, Limits(out_gb=1e-6)))
    with (out / "hole").open("wb") as file:
        file.truncate(2**40)
    assert "left more than 8 GiB" in str(outputs.excess(out, Limits()))


@pytest.mark.parametrize("instead", ["nothing", "a link", "a pipe"])
def test_an_out_that_is_no_folder_any_more_is_a_fault(instead: str, out: Path, tmp_path: Path) -> None:
    away = out.rename(tmp_path / "away")
    if instead == "a link":
        out.symlink_to(away)
    elif instead == "a pipe":
        os.mkfifo(out)

    assert "replaced the folder out/" in (outputs.fault(out) or "")
    assert outputs.excess(out, Limits()) is None
    assert outputs.checkpoint(out) is None
    assert outputs.newest(out) == 0


def test_a_tree_that_changes_while_it_is_read_neither_breaks_nor_deceives(out: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    name, new, stop = out / "model", out.parent / "new", threading.Event()
    makers: list[Callable[[], object]] = [
        lambda: new.write_text("model"), lambda: new.symlink_to(tmp_path / "secret"), lambda: os.mkfifo(new),
        lambda: new.symlink_to(tmp_path),
    ]  # fmt: skip
    allowed = {outputs.checkpoint(out)}
    for make in (makers[0], makers[1], makers[3]):
        make()
        new.replace(name)
        allowed.add(outputs.checkpoint(out))
        name.unlink()

    def churn() -> None:
        while not stop.is_set():
            for make in makers:
                make()
                new.replace(name)
            name.unlink()
            name.mkdir()
            name.rmdir()

    thread = threading.Thread(target=churn)
    thread.start()
    seen, before = set(), len([*Path("/proc/self/fd").iterdir()])
    try:
        rounds, until = 0, time.monotonic() + 60
        while rounds < 100 or (len(seen) < 2 and time.monotonic() < until):
            seen.add(outputs.checkpoint(out))
            outputs.excess(out, Limits())
            outputs.fault(out)
            outputs.newest(out)
            rounds += 1
    finally:
        stop.set()
        thread.join()

    assert seen <= allowed and len(seen) > 1
    assert len([*Path("/proc/self/fd").iterdir()]) <= before + 1


def test_an_archive_is_opened_apart_and_one_that_nobody_can_open_is_no_archive(out: Path) -> None:
    with zipfile.ZipFile(out / "model.zip", "w") as archive:
        archive.writestr("weights", b"w" * 99)
        archive.writestr("date", b"today")
    size, name, _ = read(largest_member, str(out / "model.zip")) or (0, "", "")
    assert (size, name) == (99, "weights")
    with zipfile.ZipFile(out / "odd.zip", "w") as archive:
        archive.writestr("weights", b"w" * 99)
        archive.filelist[0].extract_version = 99
    with pytest.raises(EditFailed, match="NotImplementedError"):
        read(largest_member, str(out / "odd.zip"))
