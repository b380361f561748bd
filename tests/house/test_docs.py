"""The documentation's examples run, its commands parse, its links and paths lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import environments
from environments import plugins
from flows.engine.certifying import store
from tasks.evaluate import judge_run
from tasks.proposers import Proposer
from tasks.record import reconcile
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import History, Proposal
from tests.support.histories import certified, history_of, search, tried
from tests.support.ledgers import created, filled
from tests.support.proposals import next_proposal
from tests.support.toy import GREEDY, JUDGE, SANDBOX, folder_of, nightshift

CHECKOUT = Path(__file__).parents[2]
PAGES = sorted(path for folder in (".", "docs", "benchmarks") for path in (CHECKOUT / folder).glob("*.md"))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
CODE_PATH = re.compile(r"(?<![\w./-])((?:flows|tasks|environments|blocks|benchmarks|docker|docs)/[\w./-]*\w)")


def block(page: str, language: str, containing: str) -> str:
    """The one fenced block of a page that holds a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (CHECKOUT / page).read_text(), re.DOTALL)
    (found,) = [text for text in blocks if containing in text]
    assert isinstance(found, str)
    return found


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_run_an_existing_script(tmp_path: Path, home: Path, server: str) -> None:
    toml = block("README.md", "toml", "train_cmd")
    train = (
        "import argparse, pathlib\n"
        "parser = argparse.ArgumentParser()\n"
        "for name, kind in (('--lr', float), ('--seed', int), ('--out', pathlib.Path)):\n"
        "    parser.add_argument(name, type=kind)\n"
        "args = parser.parse_args()\n"
        "sum(range(10**7))  # trains\n"
        "(args.out / 'weights').write_text(str(1 / (1 + args.lr)))\n"
    )
    evaluate = (
        "import json, pathlib, sys\n"
        "weights = pathlib.Path(sys.argv[1], 'weights').read_text()\n"
        "pathlib.Path(sys.argv[2]).write_text(json.dumps({'score': float(weights)}))\n"
    )
    files = {"environment.toml": toml, "train.py": train, "evaluate.py": evaluate}
    folder = folder_of(tmp_path / "my-problem", files)
    assert nightshift("env", "validate", str(folder)).returncode == 0
    tried = nightshift("try", str(folder), "--params", '{"lr": 0.01}', "--json")
    assert json.loads(tried.stdout)["score"] == pytest.approx(1 / 1.01)
    done = nightshift("run", str(folder), "--trials", "2", "--hours", "2", "--tracking", "off", *GREEDY, server=server)
    assert done.returncode == 0, done.stderr
    assert "my-problem-1 is finished: all 2 trials done" in done.stdout


def test_the_example_proposer_is_a_proposer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = block("CONTRIBUTING.md", "python", "class Nudge")
    folder_of(tmp_path / "example_proposers", {"__init__.py": "", "nudge.py": example})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert plugins.names("example_proposers") == ("nudge",)
    proposer = plugins.load("example_proposers", "nudge", Proposer)()  # type: ignore[type-abstract]
    cartpole = environments.load(environments.find("cartpole"))
    history = history_of(cartpole, 3)
    proposal = next_proposal(cartpole, proposer, history, seed=5)
    assert proposal == next_proposal(cartpole, proposer, history, seed=5)
    assert proposal is not None and proposal.proposer == "nudge"
    sys.modules.pop("example_proposers")


def test_the_example_trainer_learns_in_the_example_environment(tmp_path: Path) -> None:
    toml, fit = (
        block("CONTRIBUTING.md", *of) for of in (("toml", 'title = "Descent"'), ("python", "smallest program"))
    )
    folder = folder_of(tmp_path / "descent", {"environment.toml": toml, "train.py": fit, "judge.py": JUDGE})
    descent = environments.load(folder)
    scores = []
    for number, lr in enumerate((1e-4, 0.3)):
        place = TrialDir(tmp_path / f"{number:04d}")
        run = run_program("example/1", descent, SANDBOX, folder, place, Proposal({"lr": lr}), seed=1)
        assert (run.status, run.steps) == ("finished", 100), run.error
        scores.append(judge_run("example/1", descent, SANDBOX, place, run, seed=2))
    assert scores[1].utility > scores[0].utility


def test_every_link_leads_to_a_file_and_a_heading_that_there_are() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", prose(page)):
            there = (page.parent / target).resolve() if target else page
            assert there.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_path_of_ours_that_a_page_names_exists() -> None:
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue  # of its time
        for path in CODE_PATH.findall(page.read_text()):
            assert (CHECKOUT / path).exists(), f"{page.name} names {path}"


def commands(page: Path) -> Iterator[list[str]]:
    """The words after `nightshift` of each command line in a page's blocks, without comments and placeholders."""
    indented = [("", re.sub(r"\\?\n {5,}", " ", text)) for text in INDENTED.findall(prose(page))]
    for language, text in [*FENCED.findall(page.read_text()), *indented]:
        for line in re.split(r"\n|&&", text.replace("\\\n", " ")) if not language else ():
            if match := re.match(r"\s*(?:\.venv/bin/)?nightshift ([a-z].*)", line):
                words = shlex.split(re.split(r"\s{3,}#| #| > ", match[1])[0])
                yield ["1" if word == "SEED" else word for word in words if word != "..."]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_ours_in_a_block_parses(page: Path) -> None:
    from cyclopts import CycloptsError

    from flows.cli.app import app

    for words in commands(page):
        try:
            app.parse_args(words, exit_on_error=False, print_error=False)
        except CycloptsError as wrong:
            pytest.fail(f"nightshift {shlex.join(words)}: {wrong}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_settings_parses(page: Path) -> None:
    import yaml

    for language, text in FENCED.findall(page.read_text()):
        if language == "toml":
            tomllib.loads(text)
        elif language == "yaml":
            yaml.safe_load(text)
        elif language == "python":
            compile(text, page.name, "exec")


@pytest.mark.parametrize("catalogue", ["prefect.yaml", "docker/gpu.prefect.yaml"])
def test_a_catalogue_of_deployments_names_flows_and_their_parameters(catalogue: str) -> None:
    import importlib
    import inspect

    import yaml

    for deployment in yaml.safe_load((CHECKOUT / catalogue).read_text())["deployments"]:
        module, _, name = re.sub(r"\.py:", ".", deployment["entrypoint"]).replace("/", ".").rpartition(".")
        flow, stated = getattr(importlib.import_module(module), name), deployment.get("parameters", {})
        assert set(stated) <= set(inspect.signature(flow.fn).parameters)
        assert stated.get("environment", "lunar_lander") in environments.bundled()


@pytest.mark.parametrize("path", sorted((CHECKOUT / "docs/clouds").glob("*.sky.yaml")), ids=lambda path: path.name)
@pytest.mark.parametrize("step", ["setup", "run"])
def test_a_program_of_a_machine_of_skypilot_is_one_of_bash_and_uses_variables_that_are_set(
    path: Path, step: str
) -> None:
    import yaml

    task = yaml.safe_load(path.read_text())
    done = subprocess.run(["bash", "-n"], input=task[step], text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    used = set(re.findall(r"\$\{?([A-Z_]+)", task[step]))
    assert used <= {*task["envs"], *task.get("secrets", ()), "HOME", "PATH"}


@pytest.mark.parametrize("path", sorted((CHECKOUT / "docker").glob("*Dockerfile")), ids=lambda path: path.name)
def test_an_image_copies_files_that_there_are_and_every_package_of_ours(path: Path) -> None:
    lines = [line.split()[1:] for line in path.read_text().splitlines() if line.startswith("COPY ")]
    copied = [source for words in lines for source in words[:-1] if not source.startswith("--")]
    assert all((CHECKOUT / source).exists() for source in copied)
    assert {"flows", "tasks", "blocks", "environments", "pyproject.toml", "README.md"} <= set(copied)


NOTEBOOK = CHECKOUT / "docs/trials.ipynb"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["certified", "crashes alone", "baseline alone"])
def test_the_notebook_runs_to_its_end(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    import nbformat
    from nbclient import NotebookClient

    history: History = search(14) if kind == "certified" else (tried((), None if "crashes" in kind else 1.0),)
    ledger = filled(created(tmp_path), history)
    if kind == "certified":
        store(ledger, certified(1, [210, 215, 212, 214], [80, 82, 79, 84]))
    reconcile(ledger)
    monkeypatch.setenv("NIGHTSHIFT_CAMPAIGN", "n")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(NOTEBOOK.parents[1])}}).execute()

    pictures = [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]
    assert pictures
