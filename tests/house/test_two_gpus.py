"""The page for GPUs, the images and the catalogues name what there is: commands, files, pins, pools, extras."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs/gpus.md").read_text()
DOCKERFILES = sorted((CHECKOUT / "docker").glob("*Dockerfile"))
CATALOGUES = ("prefect.yaml", "docker/gpu.prefect.yaml")
ASSIGNMENT = re.compile(r"\w+=")
COMMIT = re.compile(r"\b[0-9a-f]{40}\b")
BETWEEN_CODE = re.compile(r"`((?:nightshift|prefect) [^`]+)`")


def commands() -> list[list[str]]:
    """Every command line of the page's blocks, and every one of ours in its text, in words, without its variables."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    prose = re.sub(r"^```\n.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    found = [shlex.split(line, comments=True) for line in [*lines, *BETWEEN_CODE.findall(prose)]]
    for words in found:
        while ASSIGNMENT.match(words[0]):
            words.pop(0)
    return found


def of_prefect() -> list[list[str]]:
    return [words[1:] for words in commands() if words[0] == "prefect"]


def catalogue(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((CHECKOUT / name).read_text())["deployments"]
    return found


def after(words: list[str], option: str) -> str | None:
    return words[words.index(option) + 1] if option in words else None


def test_every_command_of_prefect_on_the_page_names_a_deployment_and_a_pool_that_there_are() -> None:
    pools = {one["work_pool"]["name"] for name in CATALOGUES for one in catalogue(name)}
    campaigns = {f"campaign/{one['name']}" for one in catalogue("prefect.yaml")}
    deployed, created = set(), set()
    for words in of_prefect():
        if words[:2] == ["work-pool", "create"]:
            created.add(words[2])
            assert after(words, "--type") == ("docker" if words[2].endswith("-docker") else "process")
        elif words[:2] == ["worker", "start"]:
            assert after(words, "--pool") in created
        elif "deploy" in words and (file := after(words, "--prefect-file")):
            assert after(words, "--name") in {one["name"] for one in catalogue(file)}
            deployed.add(after(words, "--name"))
        elif words[0] == "deployment":
            (named,) = [word for word in words if "/" in word]
            assert named in campaigns
    assert created <= pools and deployed == created == {"gpu-pair", "gpu-pair-docker"}


def test_prime_rl_is_the_same_commit_wherever_it_is_named() -> None:
    image = (CHECKOUT / "docker/prime-rl.Dockerfile").read_text()
    (pinned,) = {commit for words in commands() if words[:2] == ["git", "checkout"] for commit in words[-1:]}
    assert COMMIT.fullmatch(pinned) and COMMIT.findall(image) == [pinned]
    fixed = [settings_of(path).get("fixed", {}) for path in environments_of("prime_rl")]
    assert fixed and all(pinned.startswith(one.get("prime_rl_commit", "")) for one in fixed)
    places = {one["prime_rl"] for one in fixed}
    assert all(f"git clone --filter=blob:none {REPOSITORY} {place}" in PAGE + image for place in places)


REPOSITORY = "https://github.com/PrimeIntellect-ai/prime-rl.git"


def environments_of(trainer: str) -> list[Path]:
    found = sorted((CHECKOUT / "environments").glob("*/environment.toml"))
    return [path for path in found if settings_of(path)["trainer"] == trainer]


def settings_of(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_copies_files_that_there_are_and_every_package_of_ours(path: Path) -> None:
    lines = [line.split()[1:] for line in path.read_text().splitlines() if line.startswith("COPY ")]
    copied = [source for words in lines for source in words[:-1] if not source.startswith("--")]
    assert all((CHECKOUT / source).exists() for source in copied)
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    packages = [name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]]
    assert {*packages, "pyproject.toml", project["project"]["readme"]} <= set(copied)


def test_the_catalogue_of_campaigns_is_for_machines_without_a_gpu_too_and_wakes_nobody() -> None:
    """`deploy --all` ends at the first pool that a server does not have: those of GPUs are in a file of their own."""
    found = catalogue("prefect.yaml")
    assert {one["work_pool"]["name"] for one in found} == {"trainers"}
    schedules = [schedule for name in CATALOGUES for one in catalogue(name) for schedule in one.get("schedules", ())]
    assert schedules and not any(schedule["active"] for schedule in schedules)
    (nightly,) = [one for one in found if one["name"] == "gsm8k-nightly"]
    assert nightly["parameters"]["launch"] in {one["name"] for one in catalogue("docker/gpu.prefect.yaml")}
