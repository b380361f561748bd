"""What an environment needs beyond its own folder: named exactly, refused where it is keys, granted once."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from flows.cli.arguments import stated
from flows.spec import permissions
from flows.spec.campaign_spec import CampaignSpec, checked_environment
from flows.spec.spec import spread
from tasks.system.home import home as find_home
from tests.support.ledgers import trusted
from tests.support.question_pool import pool
from tests.support.toy import QUADRATIC, quadratic

NETWORK, DATA = "network = true", 'readable = ["/srv/data"]'
CONTROL = QUADRATIC[: QUADRATIC.index("[command]")].replace('judge = "command"', 'judge = "control"')
TEXT = CONTROL.replace('judge = "control"', 'judge = "text"')


def wanted(folder: Path, toml: str = QUADRATIC) -> permissions.Permissions:
    """What a quadratic with this environment.toml asks for."""
    environment = environments.load(quadratic(folder, toml=toml))
    environment.check_files()
    return permissions.needed(environment)


def top(line: str) -> str:
    return f"{line}\n{QUADRATIC}"


def in_command(line: str) -> str:
    return QUADRATIC.replace("[limits]", f"{line}\n[limits]")


def test_a_bundled_environment_is_never_asked_about() -> None:
    for name in environments.bundled():
        permissions.require(environments.named(name))
        assert environments.is_bundled(environments.find(str(environments.find(name))))
    permissions.require_named("gymnasium", {"control.id": "this:Zen-v0"}, trust=False)


def test_an_environment_of_its_own_folder_asks_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "quad/data").mkdir(parents=True)
    assert wanted(tmp_path / "quad", top('readable = ["data", "fit.py"]')) == ()
    checked_environment(str(tmp_path / "quad"), {})
    assert not (find_home() / permissions.GRANTS).exists()


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (top("network = true"), "training uses the network"),
        (in_command("network = true"), "judging uses the network"),
        (top('readable = ["/srv/a/../data"]'), "training and judging read /srv/data"),
        (f'{CONTROL}[control]\nid = "this:Zen-v0"', "the Python module this runs in the engine, outside the sandbox"),
        (f'{CONTROL}[control]\nid = "X-v0"\nkwargs.deep.xml_file = "/etc/a.xml"', 'X-v0 gets "/etc'),
        (f'{CONTROL}[control]\nid = "X-v0"\nsources.a.kwargs.env_id = "m:X"', 'gets "m:X" in the engine'),
        (f'{TEXT}[text]\ntaskset = "fit.py"', "fit.py runs beside the engine, outside the sandbox, as you"),
        (
            f'{TEXT}[text]\ntaskset = "fit.py"\nbackend = "openai"\n'
            'endpoint = { base_url = "http://far.example/v1", key_variable = "AWS_SECRET" }',
            "judging asks http://far.example/v1, with the value of your variable AWS_SECRET",
        ),
    ],
)
def test_what_goes_beyond_the_folder_is_asked_for_in_words(tmp_path: Path, toml: str, words: str) -> None:
    assert any(words in wish for wish in wanted(tmp_path / "quad", toml))
    with pytest.raises(Refused, match=r"--trust"):
        checked_environment(str(tmp_path / "quad"), {})


def test_no_module_is_imported_before_the_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foreign.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = quadratic(tmp_path / "quad", toml=f'{CONTROL}[control]\nid = "foreign:Far-v0"')
    with pytest.raises(Refused, match="module foreign"):
        checked_environment(str(folder), {})
    assert not (tmp_path / "ran").exists()
    with pytest.raises(Refused, match="foreign:Far-v0 cannot be made"):
        checked_environment(str(trusted(folder)), {})
    assert (tmp_path / "ran").exists()


def test_a_recipe_is_asked_about_with_its_network_and_its_paths(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    asked = permissions.needed(
        pool(tmp_path / "pool", more=f'network = true\nsettings.model = ["{tmp_path}/pool/../model"]\n')
    )
    assert "its recipe uses the network" in str(asked) and f"its recipe reads {tmp_path}/model" in asked


@pytest.mark.parametrize("at", ["program.md", ".venv/lib/key.py"])
def test_a_file_that_a_link_brings_into_the_folder_is_asked_about(tmp_path: Path, at: str) -> None:
    (tmp_path / "notes").write_text("of mine")
    link = tmp_path / "quad" / at
    for parent in (link.parent, tmp_path / "quad/.venv"):
        parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("../notes" if at == "program.md" else "../../../notes")
    # What a folder of packages holds is copied only where `program` names it.
    toml = QUADRATIC.replace('["fit.py"]', '["fit.py", ".venv"]')
    assert wanted(tmp_path / "quad", toml) == (f"it reads {tmp_path}/notes, by the link {at}",)


def test_what_is_shown_is_the_real_path_and_every_character_of_it(tmp_path: Path) -> None:
    real = tmp_path / "a\x1b[2K\u202eb\nc\\d\u05d0 caf\u00e9"
    real.mkdir()
    (tmp_path / "innocent").symlink_to(real)
    (wish,) = wanted(tmp_path / "quad", top(f'readable = ["{tmp_path}/innocent"]'))
    assert wish == f"training and judging read {tmp_path}/a\\x1b[2K\\u202eb\\nc\\\\d\\u05d0 caf\\xe9"
    assert permissions.printable("a\\nb") != permissions.printable("a\nb")


SECRET = ["/", "/root", "/home", "/etc/shadow", "/proc/1", "/dev/mem", "/srv/x/.ssh/id", "/run"]


@pytest.mark.parametrize("path", [*SECRET, "{mine}", "{mine}/.config/gh", "{mine}/.cache/huggingface", "{other}"])
def test_keys_and_passwords_are_given_to_nobody_with_or_without_a_yes(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "other/.aws").mkdir(parents=True)
    path = path.format(mine=tmp_path / "me", other=tmp_path / "other")
    with pytest.raises(Refused, match=r"keys and passwords|holds the whole environment"):
        wanted(tmp_path / "quad", top(f'readable = ["{path}"]'))
    with pytest.raises(Refused, match="keys and passwords"):
        wanted(tmp_path / "judged", in_command(f'readable = ["{path}"]'))


def test_a_yes_holds_for_fewer_wishes_and_not_for_more_others_or_another_folder(tmp_path: Path) -> None:
    both, network, data = (top("\n".join(lines)) for lines in ((NETWORK, DATA), (NETWORK,), (DATA,)))
    apart = quadratic(tmp_path / "apart", toml=network)
    trusted(apart)
    (apart / "environment.toml").write_text(data)
    trusted(apart)
    (apart / "environment.toml").write_text(both)
    with pytest.raises(Refused, match="--trust"):  # data alone and the network alone leak nothing
        permissions.require(environments.load(apart))
    folder = trusted(quadratic(tmp_path / "quad", toml=both))
    for fewer in (both, network, QUADRATIC):
        (folder / "environment.toml").write_text(fewer)
        permissions.require(environments.load(folder))
    for other in (both.replace("/data", "/answers"), in_command(NETWORK)):
        (folder / "environment.toml").write_text(other)
        with pytest.raises(Refused, match="--trust"):
            permissions.require(environments.load(folder))
    with pytest.raises(Refused, match="--trust"):
        permissions.require(environments.load(quadratic(tmp_path / "two", toml=both)))


def test_a_damaged_file_of_grants_is_no_yes_and_is_named(tmp_path: Path) -> None:
    grants = find_home() / permissions.GRANTS
    grants.parent.mkdir(parents=True, exist_ok=True)
    grants.write_text("[")
    with pytest.raises(Refused, match=str(grants)):
        permissions.grant(tmp_path, ("training uses the network",))


def test_a_campaign_is_refused_before_it_exists_and_resumes_by_the_yes_of_its_start(tmp_path: Path, home: Path) -> None:
    folder = quadratic(tmp_path / "quad", toml=top("network = true"))
    spec = CampaignSpec.of(environment=str(folder), name="night", rule="greedy", tracking="off")
    with pytest.raises(Refused, match=r"training uses the network.*--trust"):
        spec.check()
    assert not (home / "night").exists()
    trusted(folder)
    spec.check()
    spec.open()
    (find_home() / permissions.GRANTS).unlink()
    spec.check()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ('environment = "cartpole"', None),
        ('environment = "cartpole"\n[advanced]\npatience = 5\noptions = { points = 3 }', None),
        ('environment = "cartpole"\ntracking = "http://far.example"', "written to http://far.example"),
        ('environment = "cartpole"\nproposer = "agent"', "a coding agent runs outside the sandbox"),
        ('environment = "cartpole"\n[advanced]\nisolation = "none"', "without a sandbox, as you"),
        ('environment = "cartpole"\nproposer = "agent"\n[advanced.options]\ncommand = ["sh", "x"]', '"sh", "x"'),
        ('environment = "cartpole"\n[advanced]\noverrides = { "network" = true }', "training uses the network"),
        ('environment = "cartpole"\n[advanced]\noverrides = { "control.id" = "this:X" }', "module this"),
    ],
)
def test_a_spec_that_comes_with_an_environment_is_asked_about(spec: str, words: str | None) -> None:
    asked = tuple(permissions.of_spec(spread(tomllib.loads(spec))))
    assert (words is None) == (asked == ())
    assert words is None or any(words in wish for wish in asked)


# The question: what is asked for is shown, and nothing starts before somebody has agreed.


def test_a_yes_says_what_it_grants_and_is_remembered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(quadratic(tmp_path / "quad", toml=top("network = true")))
    permissions.require_named(folder, {}, trust=True)
    assert "training uses the network" in capsys.readouterr().err
    permissions.require_named(folder, {}, trust=False)


def test_a_spec_beside_an_environment_cannot_leave_the_sandbox_without_a_yes(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad")
    spec = folder / "spec.toml"
    spec.write_text('environment = "."\n[advanced]\nisolation = "none"\n')
    with pytest.raises(Refused, match=r"without a sandbox.*--trust"):
        stated(str(spec), settings=[])
    stated(str(spec), settings=[], trust=True)
    assert stated(str(spec), settings=[])["environment"] == str(folder)
