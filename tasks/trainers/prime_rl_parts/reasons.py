"""Why a training failed, from prime-rl's logs."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from _program import Failed
from prime_rl_parts.run import Run

LOG_BYTES = 256 * 1024
"""Bytes read of each log, from its end."""
CLASSES = (
    ("GPU memory is taken", True, r"Free memory on device .*less than desired GPU memory utilization"),
    ("out of GPU memory", False, r"OutOfMemoryError|CUDA out of memory|No available memory for the cache blocks|"
     r"KV cache is needed, which is larger|maximum number of tokens that can be stored in KV cache"),
    ("port in use", True, r"[Aa]ddress (already )?in use|EADDRINUSE"),
    ("did not start: a GPU is gone", True, r"uncorrectable ECC|fallen off the bus|no CUDA-capable device|GPU is lost|"
     r"CUDA driver initialization failed|CUDA unknown error|No CUDA GPUs are available|NVML: Driver/library version|"
     r"Error 802: system not yet initialized"),
    ("did not start: the driver is too old", True, r"NVIDIA driver on your system is too old|"
     r"CUDA driver version is insufficient|no kernel image is available|compiled with an unsupported toolchain"),
    ("did not start: there is no CUDA compiler", True, r"Could not find nvcc|nvcc.*(not found|No such file)|"
     r"CUDA_HOME environment variable is not set"),
    ("the disk is full", True, r"No space left on device|Disk quota exceeded"),
    ("shared memory is full", True, r"SIGBUS|Bus error"),
    ("no learning signal", False, r"consecutive empty train batches"),
)  # fmt: skip
"""Beginning of a reason, whether the machine is at fault, and the pattern that shows it; the first match wins."""
UNSURE = ("did not start: there is no CUDA compiler", "the disk is full", "shared memory is full")
"""Those of the machine's faults that a setting can bring about, by compiling, or by filling the sandbox's files."""
KILLED = re.compile(r"Signal 9 \(SIGKILL\) received|exit code -9\b")
"""In the log of the component that failed first; `rl` itself kills the others after it."""
BEFORE = re.compile(
    r"^(\(\w+ pid=\d+\)\s*|\[\w+\d+\]:\s*|(INFO|WARNING|ERROR|CRITICAL|FATAL) [\d-]+ [\d:]+ (\[[\w./]+:\d+\] )?)+"
)
"""What vLLM's processes and torchrun put before a line: `(EngineCore pid=5) ERROR 08-21 22:40:01 [core.py:7] `."""
ERROR = re.compile(r"^[\w.]*(Error|Exception|Interrupt)\b|\b(ERROR|CRITICAL|Fatal|Error:)\b|Traceback")
CONSEQUENCE = re.compile(
    r"ChildFailedError|Engine core initialization failed|EngineDeadError|Failed core proc|^Traceback"
)
"""An error that only says that another process has failed, or that one follows."""


def read(path: Path) -> str:
    """The end of a log without colours; empty when there is none."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.read().decode(errors="replace"))
    return ""


def logs(run: Run) -> tuple[str, dict[str, str]]:
    """What the launcher says of the component that failed, and the end of each one's log, that one's first."""
    folder, launcher = run.folder / "logs" / "latest", read(run.home / "rl.log")
    paths = [folder / "trainer.log", *folder.glob("trainer/torchrun/**/stderr.log"), folder / "inference.log"]
    paths += [folder / "orchestrator.log", *folder.glob("envs/*/*.log")]
    texts = {path.relative_to(folder).as_posix(): read(path) for path in paths} | {"rl.log": launcher}
    failed = re.search(r"(\w+)[\w ]* failed with exit code -?\d+", launcher)
    first = {"train": "envs", "eval": "envs"}.get(failed[1].lower(), failed[1].lower()) if failed else "-"
    return failed[0] if failed else "", dict(sorted(texts.items(), key=lambda log: not log[0].startswith(first)))


def why(run: Run, otherwise: str) -> Failed:
    """The known failure in the logs; otherwise `otherwise` with their decisive lines."""
    said, texts = logs(run)
    for beginning, retry, words in CLASSES:
        for name, text in texts.items():
            if line := next((line for line in text.splitlines() if re.search(words, line)), None):
                free = re.search(r"\(([\d.]+)/([\d.]+) GiB\)", line)
                if free and float(free[1]) > 0.9 * float(free[2]):  # nobody is there: it asks for too much
                    beginning, retry = "out of GPU memory", False
                shown = BEFORE.sub("", line.strip())[:300]
                return Failed(f"{beginning}: {name}: {shown}", retry, unsure=beginning in UNSURE)
    if said and KILLED.search(f"{said}\n{next(iter(texts.values()))}"):
        advice = "see `dmesg`, or whether memory is short"
        return Failed(f"a process was killed from outside: {said}: {advice}", retry=True, unsure=True)
    lines = [f"{name}: {decisive(text)}" for name, text in texts.items() if text.strip()]
    return Failed("; ".join([otherwise, said, *lines[:1]] if said else [otherwise, *lines[:3]]))


def decisive(text: str) -> str:
    """The last line of a log that shows an error of its own, else the last error, else the last line."""
    lines = [plain for line in text.splitlines() if (plain := BEFORE.sub("", line.strip()))]
    errors = [line for line in lines if ERROR.search(line)]
    own = [line for line in errors if not CONSEQUENCE.search(line)]
    return (own or errors or lines or ["nothing"])[-1][:300]


def complaint(text: str) -> str:
    """Why `rl` refused a configuration, in one line."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip(" │╭╮╰╯─"))]
    told = (at for at, line in enumerate(lines) if re.search(r"validation error|\w+Error\b", line))
    return "; ".join(lines[next(told, max(0, len(lines) - 6)) :])[:500] or "it says nothing"
