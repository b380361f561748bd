"""Reading a repository of Python scripts without running it: its files, constants, imports, data, metric and budget."""

from __future__ import annotations

import ast
import operator
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from environments import NOT_FROZEN
from environments.plugins import Refused
from tasks.importing import Term
from tasks.importing._runner import REPOSITORY, is_seed

LARGEST_BYTES = 32 * 2**20
LARGEST_TOTAL = 128 * 2**20
UNUSED = frozenset({".gif", ".svg", ".pdf", ".ipynb", ".lock", ".log"})
"""Suffixes of files that no program reads."""
PASSED_OVER = frozenset({*NOT_FROZEN, "wandb", "node_modules", "venv"})
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip
HIGHEST_POWER = 64
PACKAGES = {
    "sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python", "yaml": "pyyaml", "Box2D": "gymnasium[box2d]",
    **{name: name for name in ("torch", "numpy", "gymnasium", "mujoco", "kernels", "transformers", "datasets")},
}  # fmt: skip
"""The package of a module, where it is known: another one may have the module's name."""
LESS_IS_BETTER = re.compile(r"bpb|loss|error|perplexity|ppl|nll|mse|mae|rmse|latency|seconds|cost|regret", re.I)
MORE_IS_BETTER = re.compile(r"acc|return|reward|score|f1|auc|win|mfu|throughput|pass|success|r2|bleu|iou", re.I)
UNBOUNDED = re.compile(r"LR|RATE|NORM|SCALE|TEMP")
"""Names of constants below 1 that may be larger than 1."""
LARGEST_SEARCHED = 1e6
"""Larger real numbers describe a machine or a data set."""
HOME = re.compile(r"""(?:expanduser\(\s*["']~/?([\w./-]*)["']\s*\)|\bPath\.home\(\))((?:\s*[,/]\s*["'][\w.-]+["'])*)""")
"""A path below the home directory: `os.path.join(os.path.expanduser("~"), "data")`, `Path.home() / "data"`."""
HUGGING_FACE = frozenset({"kernels", "transformers", "datasets", "huggingface_hub"})
"""Modules that read the cache of the Hugging Face hub."""

Literal = bool | int | float | str


def read_text(path: Path, most: int = LARGEST_BYTES) -> str:
    """A file as text. Refused if it is not one, or too large."""
    try:
        if path.stat().st_size > most:
            raise Refused(f"{path} has {path.stat().st_size} bytes, more than {most}: it is read as text")
        return path.read_text("utf-8-sig")  # as Python and YAML do, without the mark that some editors put first
    except UnicodeDecodeError as wrong:
        raise Refused(f"{path} is not written in UTF-8 ({wrong.reason} at byte {wrong.start})") from wrong
    except OSError as wrong:
        raise Refused(f"{path} cannot be read: {wrong.strerror}") from wrong


def parsed(path: Path) -> ast.Module:
    """A Python file's syntax tree. Refused if it is not Python of this version."""
    try:
        return ast.parse(read_text(path), str(path))
    except (SyntaxError, ValueError, RecursionError) as wrong:
        raise Refused(f"{path} is not Python {sys.version_info[0]}.{sys.version_info[1]}: {wrong}") from wrong


def repository_files(folder: Path) -> tuple[dict[str, str | Path], list[Term]]:
    """The files that a program may read, by place in the new environment, and those that are left out."""
    files: dict[str, str | Path] = {}
    left: dict[str, list[str]] = {}
    for path in sorted(_walked(folder)):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            left.setdefault("links out of the folder: list their targets under readable", []).append(name)
        elif not path.is_file():
            left.setdefault("no plain files", []).append(name)
        elif path.suffix in UNUSED or path.name.startswith(".") or path.name == "results.tsv":
            left.setdefault("no part of the program", []).append(name)
        elif path.stat().st_size > LARGEST_BYTES:
            reason = f"over {LARGEST_BYTES // 2**20} MiB: list the original's path under readable"
            left.setdefault(reason, []).append(name)
        else:
            files[f"{REPOSITORY}/{name}"] = path
    total = sum(path.stat().st_size for path in files.values() if isinstance(path, Path))
    if total > LARGEST_TOTAL:
        raise Refused(
            f"{folder} holds {total / 2**20:.0f} MiB of files, and every campaign copies them (limit here "
            f"{LARGEST_TOTAL // 2**20} MiB): move data elsewhere, and list its folder under readable afterwards"
        )
    return files, [Term(_listed(names), f"not copied: {reason}") for reason, names in left.items()]


def _walked(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in PASSED_OVER or (path.name.startswith(".") and path.is_dir()):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walked(path)
        else:
            yield path


def _listed(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def constants(tree: ast.Module) -> dict[str, Literal]:
    """Upper-case names that the file assigns once at its top level, with a literal value or arithmetic of such."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            for target in targets:
                assigned.setdefault(ast.unparse(target), []).extend([node.value] * len(targets))
    names = (name for name, values in assigned.items() if len(values) == 1 and name.isidentifier() and name.isupper())
    literals = {name: literal(assigned[name][0]) for name in names}
    return {name: value for name, value in literals.items() if value is not None}


def literal(node: ast.expr) -> Literal | None:
    """A literal, or arithmetic of literals, as a value; None if it is anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand)
        return -value if isinstance(value, int | float) else None
    if isinstance(node, ast.BinOp):
        left, right = literal(node.left), literal(node.right)
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return None
        if isinstance(node.op, ast.Pow):
            return left**right if 0 <= right <= HIGHEST_POWER and abs(left) <= HIGHEST_POWER else None
        if (apply := OPERATORS.get(type(node.op))) and (right or not isinstance(node.op, ast.Div | ast.FloorDiv)):
            result: Literal = apply(left, right)
            return result
    return None


def space(found: Mapping[str, Literal]) -> dict[str, dict[str, Any]]:
    """A search space around constants: ranges by their size, as nothing in a file states them."""
    ranges = {name: _range(name, value) for name, value in found.items() if not is_seed(name)}
    return {name: each for name, each in ranges.items() if each}


def _range(name: str, value: Literal) -> dict[str, Any]:
    """From a tenth to ten times; a share near 1 by its distance from 1; a count by halves and doubles."""
    if isinstance(value, bool):
        return {"type": "choice", "values": [True, False], "default": value}
    if isinstance(value, str) or value <= 0 or value >= (2**53 if isinstance(value, int) else LARGEST_SEARCHED):
        return {}
    if isinstance(value, int):
        values = sorted({max(value // 2, 1), value, value * 2})
        return {"type": "choice", "values": values, "default": value}
    bounded = value < 1 and not UNBOUNDED.search(name)
    if bounded and value > 0.8:
        low, high = round(1 - min(10 * (1 - value), 1), 12), round(1 - (1 - value) / 10, 12)
        return {"type": "float", "low": low, "high": high, "default": value}
    high = min(value * 10, 1.0) if bounded else value * 10
    return {"type": "float", "low": value / 10, "high": high, "log": True, "default": value}


def required_modules(trees: Iterable[ast.Module], folder: Path) -> dict[str, str]:
    """The installed modules that files import at their top level, each with what installs it where that is known."""
    names = {name.partition(".")[0] for tree in trees for node in tree.body for name in imported(node)}
    own = {name for name in names if (folder / f"{name}.py").exists() or (folder / name).is_dir()}
    pinned = _pinned(folder / "pyproject.toml")
    return {name: install(name, pinned) for name in sorted(names - own - set(sys.stdlib_module_names))}


def install(module: str, pinned: Mapping[str, str] = {}) -> str:
    """The command that installs a module, or words where no file and no table says which package has it."""
    package = PACKAGES.get(module, module)
    stated = pinned.get(_plain(package)) or PACKAGES.get(module)
    return f"pip install '{stated}'" if stated else f"pip install the package that has {module}"


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def _pinned(file: Path) -> dict[str, str]:
    """The dependencies of a pyproject.toml, by plain name."""
    if not file.is_file():
        return {}
    try:
        listed = tomllib.loads(read_text(file)).get("project", {}).get("dependencies", [])
    except tomllib.TOMLDecodeError:  # it is only asked for versions
        return {}
    return {_plain(re.split(r"[\s\[<>=!~;@]", each, maxsplit=1)[0]): each for each in listed if isinstance(each, str)}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def data_folders(texts: Iterable[str]) -> list[Path]:
    """Folders below the home directory that programs name: a trial has a home of its own, so they must be listed."""
    named = (match for text in texts for match in HOME.finditer(text))
    found = {Path.home().joinpath(match[1] or "", *re.findall(r"[\w.-]+", match[2])) for match in named} - {Path.home()}
    return sorted(place for place in found if not any(other in place.parents for other in found))


def hub_cache(trees: Iterable[ast.Module]) -> Path | None:
    """The cache of the Hugging Face hub, where programs use it. The token lies beside it and stays out of reach."""
    names = (name.partition(".")[0] for tree in trees for node in ast.walk(tree) for name in imported(node))
    if not HUGGING_FACE & {*names}:
        return None
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").absolute()


def metric_name(instructions: str, script: str) -> str:
    """The metric that the instructions have looked up in the log; else the first one that the script prints last."""
    if found := re.search(r"grep\s+(?:-\w+\s+)?[\"']\^?([A-Za-z_]\w*):", instructions):
        return found[1]
    if found := re.search(r"(?:lowest|highest|best)\s+`?([A-Za-z_]\w*_\w+)`?", instructions):
        return found[1]
    summary = script.rpartition("---")[2]
    if found := re.search(r"print\(f?[\"']([A-Za-z_]\w*)\s*[:=]\s*\{", summary):
        return found[1]
    raise Refused(
        'no metric is stated: say in program.md how it is read from the log, such as: grep "^val_loss:" run.log'
    )


def direction(metric: str, instructions: str) -> str:
    """Whether a metric is minimised or maximised, as the instructions say, or else as its name suggests."""
    name = re.escape(metric)
    near = re.findall(rf"[^.\n]{{0,60}}\b{name}\b[^.\n]{{0,60}}", instructions)
    less = sum(bool(re.search(r"\b(lower|lowest|minimi[sz]e|smallest)\b", text, re.I)) for text in near)
    more = sum(bool(re.search(r"\b(higher|highest|maximi[sz]e|largest)\b", text, re.I)) for text in near)
    if less != more:
        return "minimize" if less > more else "maximize"
    if bool(LESS_IS_BETTER.search(metric)) != bool(MORE_IS_BETTER.search(metric)):
        return "minimize" if LESS_IS_BETTER.search(metric) else "maximize"
    raise Refused(
        f"whether {metric} is better high or low is stated nowhere: write 'get the highest {metric}' or 'get the "
        f"lowest {metric}' into program.md"
    )


def longest_seconds(instructions: str) -> float | None:
    """The time after which the instructions give up a run."""
    if found := re.search(r"exceeds?\s+(\d+(?:\.\d+)?)\s*(second|minute|hour)", instructions):
        return float(found[1]) * {"second": 1, "minute": 60, "hour": 3600}[found[2]]
    return None
