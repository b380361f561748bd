"""Starts a program that is judged: loads the packages that it imports, says so, and runs it once the judge speaks.

    python -P -c SOURCE train.py act     # SOURCE is this file: nothing of the checkout is visible in a sandbox

What a program imports takes a hundred times as long as what it computes until it is ready, and varies by more. So the
engine counts its processor time from the line `loaded` on. Until then no statement of the program has run: its files
are parsed for their imports, and of these only what is installed is imported, from nowhere near the program.

Imports inside of functions and of the program's own modules are the program's, and count. So does a package whose
settings in `os.environ` the program must make first: it has to be imported inside of a function.
"""

import ast
import contextlib
import importlib
import importlib.machinery
import os
import select
import sys
import types
from pathlib import Path

LOADED = b"loaded"


def command(line: list[str]) -> list[str]:
    """The command line that starts `python SCRIPT ...` in this way."""
    return [line[0], "-P", "-c", Path(__file__).read_text(encoding="utf-8"), *line[1:]]


def prepared(script: Path) -> types.CodeType | None:
    """Import what the program imports, and compile its script; None if that is left to its start, which will fail."""
    trees, wanted, due = dict[Path, ast.Module](), list[tuple[str, list[str]]](), [script]
    folder = script.parent
    own = {path.name.partition(".")[0] for path in folder.iterdir()}
    while due:
        if (path := due.pop()) in trees:
            continue
        try:
            trees[path] = ast.parse(path.read_bytes(), path)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for module, names in imports(trees[path].body, path.parent.relative_to(folder).parts):
            if module.partition(".")[0] in own:
                due += files(folder, module, names)
            else:
                wanted.append((module, names))
    for module, names in wanted:
        load(module, names)
    with contextlib.suppress(KeyError, SyntaxError, ValueError, RecursionError, MemoryError):
        return compile(trees[script], script, "exec", dont_inherit=True)
    return None


def files(folder: Path, module: str, names: list[str]) -> list[Path]:
    """The program's files that may run where one of its modules, and names from it, are imported."""
    parts = module.split(".")
    modules = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    modules += [modules[-1] / name for name in names]
    return [file for path in modules for file in (path.with_name(f"{path.name}.py"), path / "__init__.py")]


def imports(statements: list[ast.stmt], package: tuple[str, ...] = ()) -> list[tuple[str, list[str]]]:
    """The modules that these statements import when they run, in a module of `package`, with the names from each."""
    found = list[tuple[str, list[str]]]()
    for statement in statements:
        if isinstance(statement, ast.Import):
            found += [(alias.name, []) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            above = package[: len(package) + 1 - statement.level] if statement.level else ()
            if module := ".".join(filter(None, [*above, statement.module])):
                found.append((module, [alias.name for alias in statement.names if alias.name != "*"]))
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.dump(statement.test):
            found += imports([*statement.body, *statement.orelse], package)
        elif isinstance(statement, ast.Try):
            handled = [inner for handler in statement.handlers for inner in handler.body]
            found += imports([*statement.body, *handled, *statement.orelse, *statement.finalbody], package)
        elif isinstance(statement, ast.With):
            found += imports(statement.body, package)
    return found


def load(module: str, names: list[str]) -> None:
    """Import an installed module, and those of the names that are modules in it; a failure is left to the program."""
    with contextlib.suppress(BaseException):
        found = importlib.import_module(module)
        for name in names:
            if not hasattr(found, name):
                importlib.import_module(f"{module}.{name}")


def without_start(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Print an exception without the frame of this file."""
    while trace and trace.tb_frame.f_code.co_filename == "<string>":
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def main(arguments: list[str]) -> tuple[types.CodeType, dict[str, object]]:
    """Load, wait for the judge, and return the program's code with the namespace to run it in."""
    script, folder = Path(arguments[0]).absolute(), Path.cwd()
    answers = os.dup(1)
    os.dup2(2, 1)  # what a package prints is no answer
    os.chdir("/")  # some packages read their settings where they are imported
    code = prepared(script)
    os.chdir(folder)
    sys.stdout.flush()
    os.dup2(answers, 1)
    os.close(answers)
    os.write(1, LOADED + b"\n")
    select.select([0], [], [])
    sys.argv, sys.path = list(arguments), [str(script.resolve().parent), *sys.path]
    module, loader = types.ModuleType("__main__"), importlib.machinery.SourceFileLoader("__main__", str(script))
    vars(module).update(__file__=str(script), __loader__=loader, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    sys.excepthook = without_start
    return code or compile(script.read_bytes(), script, "exec", dont_inherit=True), vars(module)


if __name__ == "__main__":
    exec(*main(sys.argv[1:]))
