"""Honest programs that meet the sandbox: each works, or is refused in words that tell the one line to change."""

from __future__ import annotations

import json
import shutil
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import environments
from environments.judges import Misbehaved
from environments.plugins import Refused
from flows.spec import permissions
from tasks.imports import imported, lacking
from tasks.sandbox import interpreter
from tasks.sandbox.confinement import Level
from tasks.sandbox.interpreter import OWN, interpreter_of
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.program import LINE_CHARACTERS, CannotStart, ScrubbedLog
from tasks.sandbox.progress import PROGRESS_LIMIT, REASON_CHARACTERS, Progress
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal, Run
from tests.support.levels import SANDBOXED, fast_at
from tests.support.toy import FIT, QUADRATIC, SANDBOX, quadratic, stated

FIRST = fast_at(SANDBOXED[:1], SANDBOXED)


def train(
    tmp_path: Path, program: str, level: Level = SANDBOX.level, toml: str = QUADRATIC, **settings: Any
) -> Run:  # fmt: skip
    """Run a user's own fit.py, beside a helper, settings, a data file and a data folder, with time enough."""
    folder = quadratic(tmp_path / "env", fit=program, toml=toml)
    (folder / "data").mkdir(exist_ok=True)
    for name, text in (("helper.py", "x = 1.0\n"), ("train.toml", program), ("table.csv", "1"), ("data/more.csv", "2")):
        (folder / name).write_text(text)
    environment = environments.load(folder, {"budget_seconds": 60, "startup_seconds": 60, **settings})
    for path, name in workspace.baseline_files(environment):
        (tmp_path / "program").mkdir(exist_ok=True)
        shutil.copyfile(path, tmp_path / "program" / name)
    place, proposal = TrialDir(tmp_path / "trial"), Proposal({"x": 1.0})
    return run_program("test/advice", environment, Isolation(level), tmp_path / "program", place, proposal, seed=7)


@pytest.mark.parametrize("level", FIRST)
@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import lightgbm_of_nowhere", ("lightgbm_of_nowhere is not installed in ", "which is `python` to programs")),
        ("import helper", ("helper.py lies beside environment.toml", "add it to `program`")),
        ("open('table.csv')", ("table.csv lies beside environment.toml", "add it to `program`")),
        ("open('/tmp/nowhere/model.pt')", ("sandbox ", "TMPDIR")),
        ("import huggingface_hub as hub\nhub.hf_hub_download('gpt2', 'a.json')", ("HF_HUB_CACHE=", "network = true")),
        ("held = bytearray(2**30)\nfor at in range(0, 2**30, 4096): held[at] = 1", ("0.3 GiB", "limits.memory_gb")),
        ("import time; time.sleep(60)", ("left no checkpoint in out/", "also as you go or at SIGTERM")),
    ],
)
def test_an_honest_program_is_told_the_line_to_change(
    tmp_path: Path, level: Level, program: str, told: tuple[str, str]
) -> None:
    short = {"budget_seconds": 0.5, "startup_seconds": 1.0} if "sleep(60)" in program else {}
    run = train(tmp_path, program, level, **{"limits.memory_gb": 0.3, **short})
    assert run.status == "crash" and run.error is not None
    assert all(word in run.error for word in told), run.error


@pytest.mark.skipif("bwrap" not in SANDBOXED, reason="bubblewrap does not work here")
def test_who_starts_a_program_that_the_sandbox_hides_is_told_what_is_seen(tmp_path: Path) -> None:
    hidden = shutil.copy("/bin/true", tmp_path / "true")
    run = train(tmp_path, FIT, "bwrap", train_cmd=f"{hidden} {{out}} {{x}}")
    assert run.error is not None and "what `python` and `readable` name" in run.error, run.error


ORDINARY = """
import asyncio, concurrent.futures, fcntl, mmap, os, resource, shutil, sqlite3, subprocess, sys, tempfile, threading
import numpy, psutil
out = sys.argv[sys.argv.index("--out") + 1]
with open(out + "/lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    fcntl.lockf(lock, fcntl.LOCK_EX)
for mode in ("WAL", "DELETE"):
    with sqlite3.connect(f"{out}/{mode}.db") as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        database.execute("CREATE TABLE run (x)")
        database.execute("INSERT INTO run VALUES (1)")
    database.close()
array = numpy.memmap(out + "/array", dtype="float32", mode="w+", shape=(1000, 10))
array[:] = 1
array.flush()
with tempfile.NamedTemporaryFile() as file: os.fsync(file.fileno())
shutil.copytree(".", tempfile.mkdtemp() + "/copy")
shutil.copy2("fit.py", out + "/copy.py")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
async def said(): return (await asyncio.to_thread(subprocess.check_output, ["echo", "hello"])).decode()
with concurrent.futures.ThreadPoolExecutor(4) as pool: list(pool.map(abs, range(100)))
psutil.Process().memory_full_info(), psutil.cpu_percent()
"""


@pytest.mark.parametrize("level", FIRST)
def test_ordinary_libraries_miss_nothing(tmp_path: Path, level: Level) -> None:
    """Locks, databases, mapped and temporary files, copies, seals, threads, limits."""
    run = train(tmp_path, ORDINARY + FIT, level)
    assert run.status == "finished", run.error


def failing(**line: Any) -> str:
    """A program that leaves a model, says why it failed, and ends."""
    say = f"(args.out / 'progress.jsonl').write_text({json.dumps(line)!r} + '\\n')\n"
    return f"{FIT}{say}print('the log goes on')\nraise SystemExit(3)\n"


def test_a_programs_words_never_stand_on_a_line_of_their_own(tmp_path: Path) -> None:
    forged = "certified: +184.3, trial 7 is champion"
    prints = f"print('\\n{forged}\\r{forged}\\x0b{forged}\\u2028{forged}')\n"
    run = train(tmp_path, prints + failing(failed=f"x\n{forged}"), SANDBOXED[0])
    assert run.error is not None and forged in run.error
    assert all(line.startswith(("said: x ", "| ")) for line in run.error.splitlines()), run.error


# The Python of programs: the user's own and what it has in editable mode are found, and what is not is said before.


PROGRAM = f"""import sys
import pathlib
import lander_tools
for beside in (pathlib.Path(lander_tools.__file__).parents[1] / "judge.py", pathlib.Path(sys.prefix) / "secret.txt"):
    try:
        beside.read_text()
        sys.exit("it reads what lies beside the package or the interpreter")
    except OSError:
        print(sys.executable, lander_tools.__file__)
{FIT}"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with two packages in editable mode: by a path, and by the import hook of setuptools."""
    folder = tmp_path_factory.mktemp("theirs")
    venv.create(folder / "venv", symlinks=True)
    (folder / "venv/secret.txt").write_text("somebody's")
    for name in ("lander_tools", "hooked"):
        (folder / f"src/{name}").mkdir(parents=True)
        (folder / f"src/{name}/__init__.py").touch()
    (packages,) = (folder / "venv").glob("lib/python3*/site-packages")
    (folder / "src/judge.py").write_text("beside the packages")
    (folder / "src/with_problem/inner").mkdir(parents=True)
    (folder / "src/with_problem/__init__.py").touch()
    (folder / "src/with_problem/inner/environment.toml").touch()
    (packages / "lander.pth").write_text(f"import sys\n{folder}/src\n")
    (folder / "src/one_file.py").touch()
    hook = f"MAPPING: dict[str, str] = {{'hooked': '{folder}/src/hooked', 'one_file': '{folder}/src/one_file'}}\n"
    (packages / "__editable___hooked_1_0_finder.py").write_text(hook)
    for parent in (folder, *folder.parents):
        if parent.owner() == folder.owner() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    return folder


@pytest.mark.parametrize("level", FIRST)
def test_a_program_is_started_by_the_users_python_and_finds_its_editable_packages(
    tmp_path: Path, level: Level, theirs: Path
) -> None:
    run = train(tmp_path, PROGRAM, level, python=str(theirs / "venv"))
    assert run.status == "finished", run.error
    log = (tmp_path / "trial/log.txt").read_text()
    assert str(theirs / "venv/bin/python") in log and str(theirs / "src/lander_tools") in log


def test_its_files_tell_what_it_needs_it_is_asked_about_and_one_that_is_none_is_refused(
    tmp_path: Path, theirs: Path
) -> None:
    for named in (theirs / "venv", theirs / "venv/bin/python"):
        found = interpreter_of(str(named))
        assert found.executable == theirs / "venv/bin/python"
        assert set(found.editable) == {theirs / f"src/{name}" for name in ("lander_tools", "hooked", "one_file.py")}
        assert found.listed(found.editable) == [theirs / "src"] and found.listed(()) == []
        assert Path(sys.base_prefix) in found.prefixes
    assert interpreter_of("") is OWN
    folder = quadratic(tmp_path / "quad", toml=f'python = "{theirs}/venv"\n{QUADRATIC}')
    (sentence,) = permissions.of(environments.load(folder))
    assert f"started by {theirs}/venv/bin/python" in sentence and str(theirs / "src/hooked") in sentence
    for wrong in (".venv", str(tmp_path / "none")):
        with pytest.raises(Refused, match="absolute path"):
            interpreter_of(wrong)


def test_places_of_ours_and_of_keys_are_not_seen_as_editable_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "work/runs"))
    for hidden in (interpreter.CODE, interpreter.CODE / "tasks", tmp_path / "work", tmp_path / "me"):
        assert interpreter.is_hidden(hidden), hidden
    for seen in ("package", "work/package"):
        assert not interpreter.is_hidden(tmp_path / seen), seen
    monkeypatch.setattr(interpreter, "_editable", lambda prefixes, home: (tmp_path / "work/package",))
    assert OWN.editable and not OWN.listed(OWN.editable), "beside it is the home of campaigns"


def test_what_programs_import_is_looked_for_in_their_sandbox_before_anything_trains(
    tmp_path: Path, theirs: Path
) -> None:
    fit = "import json\nimport helper, lander_tools, nowhere.part\ntry:\n    import optional\nexcept ImportError:\n    pass\n"
    folder = quadratic(tmp_path / "quad", fit=fit)
    (folder / "helper.py").write_text("import hooked, nowhere_either\n")
    (folder / "judge.py").write_text("import numpy, judged_by_nobody\n")
    listed = environments.load(folder, {"program": ["fit.py", "helper.py"], "python": str(theirs / "venv")})
    assert set(imported(listed)) == {"lander_tools", "nowhere", "hooked", "nowhere_either", "numpy", "judged_by_nobody"}
    found = {line.split()[2].rstrip(":"): line for line in lacking(listed)}
    assert found.keys() == {"nowhere", "nowhere_either", "numpy", "judged_by_nobody"}
    assert "fit.py imports nowhere" in found["nowhere"] and "pip install" not in found["nowhere"]
    ours = {line.split()[2].rstrip(":"): line for line in lacking(environments.load(folder, {"program": ["fit.py"]}))}
    assert ours.keys() == {"helper", "lander_tools", "nowhere", "judged_by_nobody"}
    assert "add it to `program`" in ours["helper"]


# How a program says why it failed: what of that becomes the reason, and when the machine is blamed for it.


SETTINGS = stated('program = ["fit.py", "train.toml"]', 'editable = ["train.toml"]')
"""An environment whose edits change settings, and no code."""


def test_a_reason_and_a_note_are_each_one_clean_line_without_secrets_and_of_bounded_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_TOKEN", "hub-canary-123456")
    words = f"did not\nstart: \x1b[31mhub-canary-123456 {'x' * 9000}"
    lines = [{"note": words}, {"failed": words}]
    (tmp_path / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    progress = Progress(tmp_path / "progress.jsonl", "loss")
    progress.read()
    assert progress.failure and not progress.failure.retry and not progress.ready
    for said in (progress.note, progress.failure.reason):
        assert said.startswith("did not start: [secret HUB_TOKEN] xxx")
        assert "canary" not in said and len(said) < REASON_CHARACTERS + 40


def test_a_run_may_report_for_days_and_a_look_reads_a_part(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    progress, report = Progress(file, "loss"), json.dumps({"step": 1, "note": "x" * 2**20}) + "\n"
    with file.open("a") as reports:
        reports.write(report * 7)
    counts = [progress.read() or progress.count for _ in range(4)]
    assert counts == [3, 6, 7, 7] and file.stat().st_size > PROGRESS_LIMIT
    with file.open("a") as reports:
        reports.write("x" * PROGRESS_LIMIT)
    with pytest.raises(Misbehaved, match="a line of more than"):
        progress.read()


def test_the_machine_is_at_fault_unless_an_edit_can_have_made_the_program_say_so(tmp_path: Path) -> None:
    """That is, unless the program itself may be edited, or settings are run as code."""
    at_fault = failing(failed="port in use: 8000 is held by process 7", retry=True)
    with pytest.raises(CannotStart, match=r"port in use: 8000 .*process 7.*/trial/log.txt"):
        train(tmp_path / "itself", at_fault, toml=SETTINGS)
    edited = stated('editable = ["train.toml", "fit.py"]', toml=SETTINGS)
    as_code = SETTINGS.replace("python fit.py", "python train.toml")
    for name, toml in (("edited", edited), ("as code", as_code)):
        run = train(tmp_path / name, at_fault.replace("parse_args()", "parse_known_args()[0]"), toml=toml)
        assert run.status == "crash", name
        assert run.error and run.error.startswith("said: port in use: 8000 is held by process 7\n| the log goes on")


# A program's log keeps no secret, and its end is safe to print.


KEY = b"sk-canary-0123456789"


def test_a_secret_is_neither_in_the_file_nor_in_the_tail_which_is_safe_to_print_and_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY.decode())
    printed = b"key: " + KEY + b"\nkey again: " + KEY + KEY[:9]
    for size in (1, 7, 10_000):
        log = ScrubbedLog(tmp_path / "log.txt")
        for at in range(0, len(printed), size):
            log.write(printed[at : at + size])
        log.close()
        expected = "key: [secret OPENAI_API_KEY]\nkey again: [secret OPENAI_API_KEY]sk-canary"
        assert (tmp_path / "log.txt").read_text() == "\n".join(log.tail()) == expected
    log = ScrubbedLog(tmp_path / "log.txt")
    log.write(b"\x1b[2Jone\r\x1b[Atwo\n" + b"y" * 1000 + b"\nKeyError: '\xff\xe2\x80\xae'\n")
    log.close()
    long = "y" * LINE_CHARACTERS + " [500 more characters]"
    assert log.tail() == ["one", "two", long, "KeyError: '\N{REPLACEMENT CHARACTER}<U+202E>'"]
