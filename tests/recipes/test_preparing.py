"""Preparing: a recipe makes once what is fit for use, in a sandbox; what was made stays what it is, or is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from flows import trial
from flows.cli.problems import env_prepare
from flows.engine import launching
from flows.engine.night import ensure_prepared
from flows.spec.campaign_spec import CampaignSpec
from tasks import preparing
from tasks.evaluate import judge_run
from tasks.stats import holdout_uses
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal
from tests.support.ledgers import trusted
from tests.support.noisy import settled
from tests.support.question_pool import RECIPE, TOML, pool
from tests.support.toy import GREEDY, SANDBOX, nightshift, quadratic


def make(environment: Environment, home: Path, said: list[str] | None = None) -> Path:
    """Prepare it, and note what was said."""
    return preparing.prepare(environment, home, [].append if said is None else said.append)


def beside(home: Path) -> list[str]:
    """What lies where recipes make things, but for logs and locks."""
    return sorted(path.name for path in (home / preparing.FOLDER).iterdir() if path.suffix not in (".log", ".lock"))


# Making


def test_what_a_recipe_makes_is_made_once_and_can_only_be_read(tmp_path: Path, home: Path) -> None:
    environment, said = pool(tmp_path / "pool"), list[str]()
    place = make(environment, home, said)
    made = preparing.read(place)
    assert made is not None
    assert made.questions == {"train": 3, "search": 3, "confirm": 3, "report": 3}
    assert sorted(made.files) == ["data/train.jsonl", *(f"judge/{n}.jsonl" for n in ("confirm", "report", "search"))]
    assert json.loads((place / "settings.json").read_text()) == {"questions": 3}
    modes = {path.name: path.stat().st_mode & 0o777 for path in (place, *place.rglob("*")) if path.suffix != ".json"}
    assert {modes[name] for name in (place.name, "data", "judge")} == {0o555}
    assert {mode for name, mode in modes.items() if name.endswith(".jsonl")} == {0o444}
    assert {path.stat().st_uid for path in place.rglob("*")} == {os.geteuid()}
    assert "once for all campaigns" in said[0] and "questions 3 train, 3 search" in said[-1]
    assert beside(home) == [place.name]
    said.clear()
    assert make(environment, home, said) == place and said == []


def test_two_at_once_wait_for_each_other_and_one_of_them_makes_it(tmp_path: Path, home: Path) -> None:
    environment = pool(tmp_path / "pool", "import time\ntime.sleep(0.6)\n" + RECIPE)
    said: list[list[str]] = [[], []]
    with ThreadPoolExecutor(2) as threads:
        places = list(threads.map(lambda words: make(environment, home, words), said))
    assert places[0] == places[1]
    waited, worked = sorted(said, key=len)
    assert waited == [] and "prepared" in worked[-1]


def test_a_preparation_that_is_killed_leaves_nothing_that_is_taken_for_whole(tmp_path: Path, home: Path) -> None:
    gate = tmp_path / "gate"
    gate.mkdir(mode=0o755)
    wait = f"import time\nwhile pathlib.Path({str(gate / 'shut')!r}).exists():\n    time.sleep(0.02)\n"
    environment = pool(tmp_path / "pool", RECIPE + wait, f'settings.gate = "{gate}"\n')
    (gate / "shut").touch()
    life = (
        "import pathlib, sys, environments\nfrom tasks import preparing\n"
        "preparing.prepare(environments.load(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]), print)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", life, environment.folder, home], stdout=subprocess.DEVNULL)
    place = preparing.place(environment, home)
    assert place is not None
    report = place.with_name(f"{place.name}.making") / "made/judge/report.jsonl"
    while not (report.is_file() and report.stat().st_size):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert preparing.read(place) is None
    assert beside(home) == [f"{place.name}.log.tmp", f"{place.name}.making"]
    (gate / "shut").unlink()
    assert make(environment, home) == place
    assert beside(home) == [place.name]


# What a recipe sees


SHUT = """
def is_shut(path):
    try:
        open(path).close()
    except OSError:
        return True
    return False

"""


def test_a_recipe_reads_its_own_files_and_what_its_settings_name_and_nothing_else(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir(mode=0o755)
    (model / "config.json").write_text("{}")
    monkeypatch.setenv("HF_TOKEN", "hf_neverseen123")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-neverseen123")
    look = (
        "import os, socket, words\n"
        "assert os.path.exists(settings['model'] + '/config.json') and words.ONE == 1\n"
        f"paths = ('environment.toml', {str(tmp_path / 'pool/judge.py')!r}, {str(home / 'secret')!r})\n"
        "assert all(map(is_shut, paths)), paths\n"
        "assert not [name for name in os.environ if 'TOKEN' in name or 'KEY' in name]\n"
        "assert os.environ['HF_HUB_OFFLINE'] == '1' and os.environ['CUDA_VISIBLE_DEVICES'] == ''\n"
        "try:\n    socket.create_connection(('127.0.0.1', 9), 1)\n"
        "except ConnectionRefusedError:\n    pass\n"
        "except OSError as shut:\n    print('no network', shut)\n"
    )
    environment = pool(tmp_path / "pool", RECIPE + SHUT + look, f'files = ["words.py"]\nsettings.model = "{model}"\n')
    (environment.folder / "words.py").write_text("ONE = 1\n")
    home.mkdir()
    (home / "secret").touch()
    assert make(environment, home).is_dir()


def test_a_recipe_with_network_shares_the_users_cache_but_not_the_token_beside_it(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "huggingface"
    cache.mkdir()
    (cache / "token").write_text("hf_neverseen123")
    monkeypatch.setenv("HF_HOME", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    look = (
        "import os\n"
        f"assert os.environ['HF_HUB_CACHE'] == {str(cache / 'hub')!r}\n"
        "assert os.environ['HF_HUB_OFFLINE'] == '1'\n"
        "pathlib.Path(os.environ['HF_HUB_CACHE'], 'fetched').write_text('x')\n"
        f"assert is_shut({str(cache / 'token')!r})\n"
    )
    environment = pool(tmp_path / "pool", RECIPE + SHUT + look, "network = true\n")
    make(environment, home)
    assert (cache / "hub/fetched").read_text() == "x"


# What goes wrong


SEARCH = RECIPE + "(folder / 'judge/search.jsonl').write_text('%s')"
TRAIN = (
    RECIPE
    + """
row = {"id": "%s", "question": "%s", "answer": 1}
(folder / "data/train.jsonl").write_text(json.dumps(row))
"""
)
"""The first of the report's questions has the number 9."""


@pytest.mark.parametrize(
    ("recipe", "more", "why"),
    [
        ("print('\\x1b[31mno such thing')\nraise SystemExit(3)", "", "prepare.py: exited with status 3"),
        ("import time\ntime.sleep(60)", "seconds = 0.5", "was not done within 0.5 s: raise [prepare] seconds"),
        ("import sys\nopen(sys.argv[1] + '/big', 'wb').truncate(2**24)", "", "than 0.01 GiB: raise [prepare] disk_gb"),
        (RECIPE + "(folder / 'notes.txt').touch()", "", "notes.txt stands beside data and judge"),
        (SEARCH % "not json", "", "judge/search.jsonl, line 1: Invalid JSON"),
        (SEARCH % '{"question": "a", "answer": "b"}', "", "line 1: id: Field required"),
        (SEARCH % "\\n", "", "judge/search.jsonl, line 1: Invalid JSON"),
        (TRAIN % (f"{9:016x}", "other"), "", "line 1: id 0000000000000009 stands in train.jsonl already"),
        (TRAIN % ("other", " 9 + 1 "), "", "question 9 + 1 stands in train.jsonl already"),
        (RECIPE + "(folder / 'data/odd').symlink_to('/etc/passwd')", "", "data/odd is no plain file"),
        (RECIPE + "(folder / 'data/odd').hardlink_to(folder / 'judge/report.jsonl')", "", "data/odd is no plain file"),
    ],
)
def test_a_recipe_that_fails_is_refused_with_its_last_words_and_leaves_nothing(
    tmp_path: Path, home: Path, recipe: str, more: str, why: str
) -> None:
    lines = TOML.replace("seconds = 60\n", "") if "seconds" in more else TOML
    quadratic(tmp_path / "pool", toml=lines + more)
    (tmp_path / "pool/prepare.py").write_text(recipe)
    with pytest.raises(Refused) as refused:
        make(environments.load(tmp_path / "pool"), home)
    assert why in str(refused.value)
    assert ("\n| no such thing" in str(refused.value)) == ("SystemExit" in recipe), "cleaned"
    assert beside(home) == []
    assert [path.suffix for path in (home / preparing.FOLDER).glob("*.log")] == [".log"]


# What was made stays what it is


def test_what_somebody_changed_is_not_taken_for_what_was_made(tmp_path: Path, home: Path) -> None:
    environment = pool(tmp_path / "pool")
    place = make(environment, home)
    report = place / "judge/report.jsonl"
    report.chmod(0o644)
    text = report.read_text()
    report.write_text(text.replace("9", "8"))
    with pytest.raises(Refused, match=r"report\.jsonl"):
        make(environment, home)
    report.write_text(text)
    assert make(environment, home) == place
    place.chmod(0o755)
    (place / "prepared.json").unlink()
    with pytest.raises(Refused, match=r"prepared\.json is not what was made"):
        make(environment, home)


def test_a_campaign_does_not_go_on_with_questions_that_were_made_anew_and_differ(tmp_path: Path, home: Path) -> None:
    chance = RECIPE.replace("number = 0", "import os\nnumber = int.from_bytes(os.urandom(3))")
    ledger = CampaignSpec.of(environment=str(trusted(pool(tmp_path / "pool", chance).folder)), name="n").open()
    ensure_prepared(ledger)
    said = [event["words"] for event in ledger.events() if event["event"] == "preparing"]
    assert "prepare.py prepares it" in said[0] and "content" in said[-1]
    ledger.verify()
    place = ledger.environment.prepared
    assert place is not None
    first = preparing.read(place)
    assert first is not None and preparing.PREPARED.validate_json((ledger.path / "prepared.json").read_bytes()) == first
    subprocess.run(["chmod", "-R", "u+w", place], check=True)
    subprocess.run(["rm", "-r", place], check=True)
    ledger.verify()
    with pytest.raises(Refused, match="made anew") as refused:
        ensure_prepared(ledger)
    assert first.content in str(refused.value)
    with pytest.raises(Refused, match="was made anew"):
        ledger.verify()


def test_a_launched_run_waits_until_what_was_made_can_be_seen_on_its_machine(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = CampaignSpec.of(environment=str(trusted(pool(tmp_path / "pool").folder)), name="n").open()
    ensure_prepared(ledger)
    place = ledger.environment.prepared
    assert place is not None
    late = place.with_name("on its way")
    place.rename(late)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(trial.see_prepared, ledger.environment)
        time.sleep(0.3)
        assert not waiting.done()
        late.rename(place)
        waiting.result(timeout=30)
    place.rename(late)
    monkeypatch.setattr(launching, "VISIBLE_SECONDS", 0.1)
    with pytest.raises(Refused, match="same storage"):
        trial.see_prepared(ledger.environment)


# Training and judging with it


def test_a_program_reads_the_data_and_the_judge_its_own_questions_for_each_use(tmp_path: Path, home: Path) -> None:
    look = SHUT + (
        "import json, pathlib\n"
        "data = pathlib.Path(json.loads(pathlib.Path('config.json').read_text())['data'])\n"
        "assert len((data / 'train.jsonl').read_text().splitlines()) == 3\n"
        "assert is_shut(data.parent / 'judge/search.jsonl'), 'it sees what the judge asks'\n"
    )
    environment = preparing.laid(pool(tmp_path / "pool"), home)
    fit = environment.folder / "fit.py"
    fit.write_text(look + fit.read_text())
    make(environment, home)
    place = TrialDir(tmp_path / "0000")
    run = run_program("pool/1", environment, SANDBOX, environment.folder, place, Proposal({"x": 2.0}), seed=1)
    assert run.status == "finished", run.error
    firsts = {}
    for use in ("search", "control", "confirm", "report"):
        score = judge_run("pool/1", environment, SANDBOX, place, run, seed=2, use=use)  # type: ignore[arg-type]
        assert score.units == (1.0, 1.0, 1.0), score.error
        firsts[use] = score.also["first"]
    assert firsts == {"search": 4.0, "control": 4.0, "confirm": 7.0, "report": 10.0}


# Looks at the report questions


def asked(place: Path, questions: str = "1+2") -> Path:
    """A folder of prepared files with these report questions."""
    (place / "judge").mkdir(parents=True)
    (place / "judge/report.jsonl").write_text(questions)
    return place


def charged(place: Path, *uses: tuple[str, int, bool | None]) -> list[float]:
    """The levels of these uses, each charged and, if it is over, concluded."""
    levels = []
    for campaign, look, passed in uses:
        levels.append(holdout_uses.charge(place, campaign, look)[1])
        if passed is not None:
            holdout_uses.conclude(place, campaign, look, passed)
    return levels


def test_a_use_is_charged_once_however_often_it_is_resumed_to_one_account_of_the_same_questions(tmp_path: Path) -> None:
    place, same, other = asked(tmp_path / "one"), asked(tmp_path / "same"), asked(tmp_path / "other", "1+3")
    found = [holdout_uses.charge(place, *one) for one in (("a", 1), ("a", 1), ("b", 1), ("a", 2), ("b", 1))]
    assert found == [(0, 0.05 / 2), (0, 0.05 / 2), (1, 0.05 / 6), (2, 0.05 / 12), (1, 0.05 / 6)]
    with holdout_uses.path_of(place).open("a") as file:
        file.write('{"campaign": "c", "lo')
    assert holdout_uses.charge(same, "c", 1) == (3, 0.05 / 20) and charged(other, ("c", 1, None)) == [0.05 / 2]
    holdout_uses.conclude(place, "b", 1, True)
    assert holdout_uses.charge(same, "b", 1) == (1, 0.05 / 6)
    assert [use.key for use in holdout_uses.uses(place)] == [("a", 1), ("b", 1), ("a", 2), ("c", 1)]


def test_all_uses_of_a_pool_share_one_error_rate_and_a_pass_hands_its_level_on(tmp_path: Path) -> None:
    outcomes = {"a": False, "b": True, "c": True, "d": False, "e": None}
    levels = charged(asked(tmp_path / "pool"), *((campaign, 1, passed) for campaign, passed in outcomes.items()))
    handed_on = 0.05 / 6 + 0.05 / 12
    assert levels == pytest.approx([0.05 / 2, 0.05 / 6, handed_on, handed_on + 0.05 / 20, 0.05 / 30])


CHARGES = """
import pathlib, sys
from tasks.stats import holdout_uses
for look in range(1, 9):
    holdout_uses.charge(pathlib.Path(sys.argv[1]), sys.argv[2], look)
"""


def test_campaigns_that_use_a_pool_at_one_time_are_charged_one_after_another(tmp_path: Path) -> None:
    place = asked(tmp_path / "pool")
    charging = [subprocess.Popen([sys.executable, "-c", CHARGES, str(place), name]) for name in "abc"]
    assert [one.wait(60) for one in charging] == [0, 0, 0]
    levels = [use.level for use in holdout_uses.uses(place)]
    assert levels == [0.05 / (n * (n + 1)) for n in range(1, 25)]


# The command


def test_env_prepare_makes_it_and_says_the_second_time_that_it_is_there(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(trusted(pool(tmp_path / "pool").folder))
    assert env_prepare(folder) == 0
    told = capsys.readouterr()
    assert "pool is prepared: questions 3 train" in told.out and "prepares it" in told.err
    holdout_uses.charge(preparing.place(environments.load(Path(folder)), home) or home, "abc", 1)
    assert env_prepare(folder, json=True) == 0
    told = capsys.readouterr()
    facts = json.loads(told.out)
    assert told.err == "" and not facts["made_now"]
    assert facts["questions"]["report"] == 3 and facts["looks"][0]["campaign"] == "abc"
    assert facts["looks"][0]["level"] == 0.05 / 2 and facts["next_level"] == 0.05 / 6
    quad = str(quadratic(tmp_path / "quad"))
    with pytest.raises(Refused, match="recipe"):
        env_prepare(quad)


# What a recipe makes goes with a champion: into reruns, and other environments with a recipe of their own.


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_a_recipe_has_made_goes_with_a_trial_into_a_rerun_and_another_environment(
    tmp_path: Path, home: Path, server: str
) -> None:
    here, there = pool(tmp_path / "sums"), pool(tmp_path / "other_sums", RECIPE.replace("number = 0", "number = 100"))
    options = ["--trials", "1", "--name", "n", "--seed", "5", "--tracking", "off", "--trust", *GREEDY]
    ran = nightshift("run", str(here.folder), *options, server=server)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ledger = Ledger.open("n")
    assert nightshift("rerun", "n", "1", server=server).returncode == 0
    redone = ledger.history()[1]
    assert redone.attempt == 2 and redone.score.also["first"] == 4.0, "the same questions"

    settled(ledger, {"x": 1.0})
    carried = nightshift("certify", "n", "--on", str(there.folder), "--trust", "--runs", "4", "--json", server=server)
    assert carried.returncode == 0, carried.stderr
    (transfer,) = json.loads(carried.stdout)["transfers"]
    assert all(value is not None for value in transfer["champion"]["values"] + transfer["baseline"]["values"])
    asked = json.loads((ledger.path / "certificates/on-other_sums/prepared.json").read_text())
    made = [preparing.read(preparing.place(one, home) or home) for one in (here, there)]
    assert [one and one.content == asked["content"] for one in made] == [False, True]
