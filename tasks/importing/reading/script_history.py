"""The experiments of a repository whose script is edited and committed, for proposers."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from environments.space import Value
from tasks.importing import EarlierTrial, Term
from tasks.importing import _repository as repository
from tasks.importing._script import SCRIPT, Script
from tasks.importing.reading import results_tsv


def history(script: Script) -> tuple[EarlierTrial, ...]:
    """The lines of its results.tsv. One whose commit changed nothing but constants of the script has their values."""
    body = _without_constants(repository.read_text(script.folder / SCRIPT))
    return results_tsv.trials(script.folder / results_tsv.FILE, lambda commit: _params(script, body, commit))


def carried(trials: tuple[EarlierTrial, ...]) -> tuple[Term, ...]:
    """What became of its results.tsv."""
    if not trials:
        return ()
    known = sum(bool(one.params) for one in trials)
    return (
        Term(results_tsv.FILE, f"{len(trials)} earlier trials, {known} of them with the constants of their commit"),
    )


def _params(script: Script, body: str, commit: str) -> Mapping[str, Value]:
    text = results_tsv.at_commit(script.folder, commit, SCRIPT)
    if text is None or _without_constants(text) != body:
        return {}
    then = repository.constants(ast.parse(text))
    return {name: then.get(name, script.constants[name]) for name in repository.space(script.constants)}


def _without_constants(text: str) -> str:
    """The script's syntax tree with every constant at its top set to None; empty if it is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    names = repository.constants(tree)
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and target.id in names:
            node.value = ast.Constant(None)
    return ast.dump(tree)
