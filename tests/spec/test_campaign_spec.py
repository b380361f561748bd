"""What a campaign is asked to be: bad values are refused by name, and spec.toml says what it was made of."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import environments
from environments.plugins import Refused
from flows.campaign import campaign
from flows.cli import stated
from flows.cli.set_option import SetOptions, overrides_only, parse_settings
from flows.spec.advanced import Advanced
from flows.spec.campaign_spec import CampaignSpec, differences
from flows.spec.clock_time import next_time
from flows.spec.environment import check_editable
from flows.spec.options import TIME
from tasks.cancellers.curve import ByCurve
from tests.support.toy import QUADRATIC, quadratic


def spec(**parameters: Any) -> CampaignSpec:
    return CampaignSpec.of(**{"environment": "cartpole", "name": "n", **parameters})


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"trials": 0}, "campaign: trials: Input should be greater than or equal to 1, got 0"),
        ({"trials": 2.5}, "campaign: trials: Input should be a valid integer"),
        ({"trials": 10**9}, "campaign: trials: Input should be less than or equal to 100000, got 1000000000"),
        ({"hours": 0}, "campaign: hours: Input should be greater than 0, got 0"),
        ({"hours": -1}, "campaign: hours: Input should be greater than 0, got -1"),
        ({"hours": float("nan")}, "campaign: hours: Input should be less than or equal to 8760, got nan"),
        ({"hours": float("inf")}, "campaign: hours: Input should be less than or equal to 8760, got inf"),
        ({"seed": -1}, "campaign: seed: Input should be greater than or equal to 0, got -1"),
        ({"seed": 2**31}, "campaign: seed: Input should be less than 2147483648, got 2147483648"),
        ({"until": "25:00"}, "campaign: until: is not a time of day: give HH:MM, such as 07:30, got '25:00'"),
        ({"until": "07:60"}, "campaign: until: is not a time of day: give HH:MM, such as 07:30, got '07:60'"),
        ({"until": "soon"}, "until: must be a time of day such as 07:30, or an ISO date and time, got 'soon'"),
        ({"trails": 3}, "campaign: trails: unknown key. Did you mean 'trials'?"),
        ({"patience": 3}, "campaign: patience: unknown key here: it belongs in [advanced]."),
        ({"advanced": {"max_usd": float("inf")}}, "campaign: advanced.max_usd: Input should be less than or equal to"),
        ({"advanced": {"max_gpu_hours": float("nan")}}, "campaign: advanced.max_gpu_hours: Input should be"),
        ({"advanced": {"overrides": {"control.kwargs": {"gravity": float("inf")}}}},
         "campaign: advanced.overrides: 'control.kwargs' must be finite, got {'gravity': inf}"),
        ({"advanced": {"options": {"proposals": [{"params": {"x": float("nan")}}]}}}, "'proposals' must be finite"),
        ({"advanced": {"fidelity": 1}}, "a share of the budget from 0.05 to 0.8 such as 0.3, got 1"),
        ({"advanced": {"patience": 0}}, "advanced.patience: Input should be greater than or equal to 1, got 0"),
        ({"advanced": {"crash_share": 2}}, "advanced.crash_share: Input should be less than or equal to 1, got 2"),
        ({"advanced": {"crash_share": 0}}, "campaign: advanced.crash_share: Input should be greater than 0, got 0"),
        ({"advanced": {"optons": {}}}, "campaign: advanced.optons: unknown key. Did you mean 'options'?"),
        ({"name": "a b"}, "campaign name 'a b': 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_name(parameters: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=re.escape(why)):
        spec(**parameters)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(Refused) as refused:
        spec(trials=0, hours=0, seed=-1)
    assert [line.split(": ")[1] for line in str(refused.value).splitlines()] == ["trials", "hours", "seed"]


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"environment": "cartpol"}, "unknown environment 'cartpol'. Did you mean 'cartpole'?"),
        ({"proposer": "randomsearch"}, "unknown proposer 'randomsearch'. Did you mean 'random_search'?"),
        ({"proposer": "grid", "advanced": {"options": {"points": 0}}}, "proposer grid: points: Input should"),
        ({"advanced": {"options": {"points": 3}}}, "proposer tpe: points: unknown key. Known: startup."),
        ({"rule": "greddy"}, "unknown rule 'greddy'. Did you mean 'greedy'?"),
        ({"rule": "race", "advanced": {"rule_options": {"most": 0}}}, "rule race: most: Input should be greater"),
        ({"advanced": {"rule_options": {"most": 2}}}, "rule certify: most: unknown key"),
        ({"cancel": "curv"}, "unknown canceller 'curv'. Did you mean 'curve'?"),
        ({"cancel": "none", "advanced": {"cancel_options": {"fraction": 0.5}}}, "cancel = 'none' takes no options"),
        ({"advanced": {"overrides": {"space.y.high": 1}}}, "space.y.type: is required"),
        ({"advanced": {"overrides": {"budgetseconds": 1}}}, "budgetseconds: unknown key. Did you mean"),
        (
            {"hours": 0.0015, "rule": "greedy"},
            "hours = 0.0015 (5 s) is less than the baseline may take (7 s): raise hours",
        ),
        (
            {"until": "2001-01-01T00:00", "rule": "greedy"},
            "comes before the baseline can end (7 s): give a later time",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_before_anything_starts(
    tmp_path: Path, home: Path, parameters: dict[str, Any], why: str
) -> None:
    asked = spec(**{"environment": str(quadratic(tmp_path / "quad")), **parameters})
    with pytest.raises(Refused, match=re.escape(why)):
        asked.check()
    assert not (home / "n").exists()


@pytest.mark.parametrize("trials", [3, 16, 500])
def test_a_night_too_short_to_prove_anything_is_refused(tmp_path: Path, trials: int) -> None:
    """The baseline's three runs and the smallest certificate's eight, a tenth over, have to fit in, with start-ups."""
    drawing = QUADRATIC.replace("deterministic = true", "deterministic = false")
    folder, need = str(quadratic(tmp_path / "quad", toml=drawing)), (3 + 1.1 * 8) * (5 + 2)
    short = spec(environment=folder, trials=trials, hours=(need - 1) / 3600)
    why = rf"the baseline and the certificate may take \({need:g} s\): raise hours, or use rule = greedy"
    with pytest.raises(Refused, match=why):
        short.check()
    spec(environment=folder, trials=trials, hours=(need + 1) / 3600).check()
    spec(environment=folder, trials=trials, hours=13 / 3600, rule="greedy").check()


def test_a_proposer_of_edits_needs_a_file_of_the_program_that_it_may_edit(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace('editable = ["fit.py"]\n', ""))
    spec(environment=str(folder), rule="greedy").check()
    mine = {"proposer": "agent", "advanced": {"options": {"command": ["true"]}, "allow_unsandboxed": True}}
    with pytest.raises(
        Refused, match=r"editable = \['train.py'\], and none of these is a file of its program \(fit.py"
    ):
        spec(environment=str(folder), rule="greedy", **mine).check()


def test_a_trainers_own_program_may_be_edited_beside_files_of_the_environment(tmp_path: Path) -> None:
    folder = tmp_path / "pole"
    shutil.copytree(environments.find("cartpole"), folder)
    text = (folder / "environment.toml").read_text()
    (folder / "environment.toml").write_text(f'program = ["net.py"]\n{text}')
    (folder / "net.py").touch()
    check_editable(environments.load(folder))
    with pytest.raises(Refused, match=r"none of these is a file of its program \(net.py, train.py"):
        check_editable(environments.load(folder, {"editable": ["environment.toml"]}))


def test_a_time_that_is_over_does_not_keep_a_campaign_from_being_resumed(tmp_path: Path) -> None:
    folder = str(quadratic(tmp_path / "quad"))
    spec(environment=folder).open()
    spec(environment=folder, until="2001-01-01T00:00").check()


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"trials": 7, "hours": 1.5, "until": "2031-05-06T07:30", "seed": 12, "tracking": "off"},
        {"proposer": "grid", "advanced": Advanced(options={"points": 5})},
        {"rule": "race", "replicates": 2, "advanced": Advanced(rule_options={"most": 2}, looks="several")},
        {"cancel": "none", "advanced": Advanced(ablation=True)},
        {"advanced": Advanced(patience=3, crash_share=0.5)},
        {"advanced": Advanced(overrides={"budget_seconds": 9, "command.total_seconds": 2.5})},
        {"advanced": Advanced(overrides={"title": 'a "quoted" \\ title\nof two lines', "device": "cpu"})},
        {"advanced": Advanced(overrides={"editable": ["fit.py", "net.py"], "fixed.fast": True})},
        {"advanced": Advanced(overrides={"fixed": {"a": 1, "b": "x"}})},
    ],
)
def test_the_file_of_a_specification_makes_the_same_specification(tmp_path: Path, parameters: dict[str, Any]) -> None:
    folder = quadratic(tmp_path / "quad")
    asked = spec(environment=str(folder), **parameters)
    (tmp_path / "spec.toml").write_text(asked.toml())
    assert CampaignSpec.of(**stated.stated(str(tmp_path / "spec.toml"), settings=[])) == asked


@pytest.mark.parametrize(
    "overrides", [{"editable": ["fit.py", "net.py"]}, {"fixed": {"a": 1}}, {"space.x.high": 2.75}, {"title": "t"}]
)
def test_an_override_of_any_kind_is_kept_by_the_campaign(tmp_path: Path, overrides: dict[str, Any]) -> None:
    asked = spec(environment=str(quadratic(tmp_path / "quad")), advanced=Advanced(overrides=overrides))
    created = asked.open()
    again = asked.open()
    assert again.campaign == created.campaign
    assert again.campaign.overrides == overrides


def test_the_file_names_its_environment_for_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = quadratic(tmp_path / "quad")
    monkeypatch.chdir(tmp_path)
    assert f'environment = "{folder}"' in spec(environment="./quad").toml()
    assert 'environment = "cartpole"' in spec().toml()


def test_the_environment_in_a_specification_is_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text('environment = "./quad"\ntrials = 3\n')
    found = stated.stated(str(tmp_path / "night.toml"), settings=[])
    assert (found["environment"], found["trials"]) == (str(tmp_path / "quad"), 3)


def test_the_command_line_is_laid_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text(
        'environment = "cartpole"\ntrials = 3\nhours = 1\n[advanced]\npatience = 2\ncrash_share = 0.5\n'
        '[advanced.overrides]\ndevice = "cuda"\nbudget_seconds = 9\n'
    )
    found = stated.stated(str(tmp_path / "night.toml"), trials=9, hours=None, patience=4, settings=["device=cpu"])
    assert CampaignSpec.of(name="n", **found) == spec(
        trials=9,
        hours=1,
        advanced=Advanced(patience=4, crash_share=0.5, overrides={"device": "cpu", "budget_seconds": 9}),
    )


def test_an_option_of_a_plug_in_leaves_the_others_of_its_table_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text(
        'environment = "cartpole"\n[advanced.options]\npoints = 5\n[advanced.cancel_options]\nfraction = 0.5\n'
    )
    found = stated.stated(str(tmp_path / "night.toml"), trust=True, settings=["cancel.least=0.2", "rule.most=3"])
    assert found["advanced"] == {
        "options": {"points": 5}, "cancel_options": {"fraction": 0.5, "least": 0.2}, "rule_options": {"most": 3},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        ("trials = ", "not TOML: Invalid value"),
        (b"\xff", "not TOML: "),
        ("trials = 3", "environment: is required"),
        ("environment = 'a'\nadvanced = 7", "advanced: must be a table of keys, got 7"),
        ("environment = 'a'\n[advanced]\noverrides = [1]", "advanced.overrides: must be a table of keys, got [1]"),
        ("environment = 'a'\n[advanced]\noptions = 7", "advanced.options: must be a table of keys, got 7"),
    ],
)
def test_a_file_that_is_no_specification_is_refused(tmp_path: Path, text: str | bytes | None, why: str) -> None:
    path = tmp_path / "night.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Refused, match=re.escape(f"{path}: {why}")):
        stated.stated(str(path), settings=[])


def test_who_names_the_file_of_an_environment_is_told_to_name_its_folder(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad")
    why = f"environment.toml is an environment, not a spec: name its folder, {folder}"
    with pytest.raises(Refused, match=re.escape(why)):
        stated.stated(str(folder / "environment.toml"), settings=[])


def test_a_time_of_day_is_the_next_time_that_the_clock_shows_it() -> None:
    now = datetime.datetime.now().astimezone().replace(second=0, microsecond=0)
    for minutes in (-90, -2, 2, 90):
        asked = now + datetime.timedelta(minutes=minutes)
        then = next_time(f"{asked.hour}:{asked.minute:02d}")
        assert 0 < then.timestamp() - time.time() <= 24 * 3600
        assert (then.hour, then.minute, then.second) == (asked.hour, asked.minute, 0)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2031-05-06T07:30:00+00:00", 1935819000.0),
        ("2031-05-06T07:30:00+02:00", 1935811800.0),
        ("2031-05-06T07:30:00Z", 1935819000.0),
    ],
)
def test_a_full_date_and_time_stands_for_itself(text: str, moment: float) -> None:
    assert next_time(text).timestamp() == moment
    assert spec(until=text).deadline == moment


@pytest.fixture
def berlin() -> Iterator[None]:
    """The clocks of Berlin, spelt out so that no table of time zones is needed."""
    with pytest.MonkeyPatch.context() as there:
        there.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("2031-03-29T22:00:00+01:00", "2031-03-30T07:30:00+02:00"),
        ("2031-10-25T22:00:00+02:00", "2031-10-26T07:30:00+01:00"),
        ("2031-07-01T22:00:00+02:00", "2031-07-02T07:30:00+02:00"),
        ("2031-07-01T05:00:00+02:00", "2031-07-01T07:30:00+02:00"),
    ],
)
def test_a_time_of_day_is_what_the_clock_will_show_though_clocks_may_change_that_night(now: str, then: str) -> None:
    assert next_time("07:30", datetime.datetime.fromisoformat(now)).isoformat() == then


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("now", ["2031-10-26T02:10:00+01:00", "2031-10-26T02:45:00+02:00"])
def test_a_time_that_the_clock_shows_twice_is_the_next_of_the_two(now: str) -> None:
    assert next_time("02:30", datetime.datetime.fromisoformat(now)).isoformat() == "2031-10-26T02:30:00+01:00"


def test_without_a_time_to_end_there_is_no_deadline() -> None:
    assert spec().deadline is None


@pytest.mark.parametrize(
    "text", ["24:00", "7", "7:3", "07:30 pm", "tomorrow", "-1:30", "07:30:99", "0001-01-01T00:00+14:00"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"07:30"):
        next_time(text)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"trials": 3, "hours": 1.0, "tracking": "off", "until": "07:30"}, []),
        ({"advanced": {"patience": 3}}, []),
        ({"seed": 4}, []),
        ({"seed": 5}, [("seed", 4, 5)]),
        ({"proposer": "grid"}, [("proposer", "tpe", "grid")]),
        ({"rule": "race"}, [("rule", "certify", "race")]),
        ({"cancel": "none"}, [("cancel", "curve", "none")]),
        ({"replicates": 3}, [("replicates", 1, 3)]),
        ({"advanced": {"looks": "several"}}, [("looks", "one", "several")]),
        ({"advanced": {"rule_options": {"most": 2}}}, [("rule_options", {}, {"most": 2})]),
        ({"advanced": {"cancel_options": {"fraction": 0.5}}}, [("cancel_options", {}, {"fraction": 0.5})]),
        ({"advanced": {"options": {"points": 2}}}, [("options", {}, {"points": 2})]),
        ({"advanced": {"overrides": {"device": "cpu"}}}, [("overrides", {}, {"device": "cpu"})]),
        ({"environment": "cartpole"}, [("environment", "QUAD", "cartpole")]),
    ],
)  # fmt: skip
def test_what_changes_a_score_is_a_difference_and_a_guard_is_none(
    tmp_path: Path, change: dict[str, Any], found: list[tuple[str, object, object]]
) -> None:
    folder = str(quadratic(tmp_path / "quad"))
    ledger = spec(environment=folder, seed=4).open()
    expected = [(what, folder if was == "QUAD" else was, asked) for what, was, asked in found]
    assert differences(ledger, spec(**{"environment": folder, **change})) == expected


def test_a_seed_that_is_left_out_is_the_campaigns_own(tmp_path: Path) -> None:
    folder = str(quadratic(tmp_path / "quad"))
    first = spec(environment=folder).open()
    assert spec(environment=folder).open().campaign.seed == first.campaign.seed


def test_two_campaigns_without_a_seed_draw_different_ones(tmp_path: Path) -> None:
    folder = str(quadratic(tmp_path / "quad"))
    seeds = {spec(environment=folder, name=f"n{i}").open().campaign.seed for i in range(3)}
    assert len(seeds) == 3


def test_a_guard_that_changes_is_noted_and_stored(tmp_path: Path) -> None:
    folder = str(quadratic(tmp_path / "quad"))
    ledger = spec(environment=folder, trials=3).open()
    spec(environment=folder, trials=3).store(ledger)
    assert list(ledger.events()) == []
    spec(environment=folder, trials=5).store(ledger)
    assert "trials = 5" in (ledger.path / "spec.toml").read_text()
    assert [(event["event"], event["changed"]) for event in ledger.events()] == [("guards", {"trials": [3, 5]})]


@pytest.mark.parametrize(
    ("setting", "stated"),
    [
        ("budget_seconds=30", {"overrides": {"budget_seconds": 30}}),
        ("control.episodes=20", {"overrides": {"control.episodes": 20}}),
        ("proposer.points=5", {"options": {"points": 5}}),
        ("rule.most=2", {"rule_options": {"most": 2}}),
        ("cancel.fraction=0.5", {"cancel_options": {"fraction": 0.5}}),
        ("proposer=5", {"overrides": {"proposer": 5}}),
        ("space.lr.low=1e-3", {"overrides": {"space.lr.low": 1e-3}}),
        ("device=cpu", {"overrides": {"device": "cpu"}}),
        ('device="cpu"', {"overrides": {"device": "cpu"}}),
        ("fixed.anneal=false", {"overrides": {"fixed.anneal": False}}),
        ("editable=['a.py']", {"overrides": {"editable": ["a.py"]}}),
        ("title=a = b", {"overrides": {"title": "a = b"}}),
        ("title=", {"overrides": {"title": ""}}),
    ],
)
def test_a_setting_is_told_apart_and_read_as_toml_where_it_is(
    setting: str, stated: dict[str, dict[str, object]]
) -> None:
    assert json.dumps(parse_settings([setting]).stated) == json.dumps(stated)


def test_the_later_of_two_settings_counts() -> None:
    assert parse_settings(["device=cpu", "device=cuda"]) == SetOptions({"device": "cuda"})


def test_an_option_of_a_plug_in_is_refused_where_there_is_no_campaign() -> None:
    assert overrides_only(["device=cpu"]) == {"device": "cpu"}
    with pytest.raises(Refused, match="--set: rule_options"):
        overrides_only(["device=cpu", "rule.most=2"])


@pytest.mark.parametrize("setting", ["budget_seconds", "=3", ""])
def test_a_setting_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(Refused, match=re.escape(f"--set {setting!r}: ") + ".*key=value"):
        parse_settings([setting])


def test_a_specification_cannot_be_changed_behind_a_campaigns_back() -> None:
    with pytest.raises(ValueError, match="frozen"):
        spec().trials = 3


def test_a_space_that_is_wrong_in_the_file_is_refused_for_a_new_campaign_only(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad")
    asked = spec(environment=str(folder))
    asked.open()
    (folder / "environment.toml").write_text(QUADRATIC.replace("low = -3.0", "low = 9.0"))
    asked.check()
    with pytest.raises(Refused, match="low"):
        spec(environment=str(folder), name="another").check()


def test_the_form_begins_with_what_a_specification_has_by_itself() -> None:
    properties = campaign.parameters.model_dump()["properties"]
    form = {name: shown["default"] for name, shown in properties.items() if name != "environment"}
    assert CampaignSpec.of(**{**form, "name": "n", "environment": "cartpole"}) == spec(environment="cartpole")


@pytest.mark.parametrize("text", ["7:30", "07:30", "23:59", "2031-05-06T07:30", "2031-05-06 07:30:00+02:00"])
def test_what_the_form_takes_for_a_time_is_one(text: str) -> None:
    assert re.search(TIME, text) and next_time(text)


@pytest.mark.parametrize("text", ["24:00", "7", "7:3", "07:60", "07:30 pm", "tomorrow", "-1:30", "07:30:99", " "])
def test_what_the_form_refuses_as_a_time_is_none(text: str) -> None:
    assert not re.search(TIME, text)
    with pytest.raises(ValueError, match=r"07:30"):
        next_time(text)


@pytest.mark.parametrize(
    ("stored", "meant"),
    [
        ({"__prefect_kind": "json"}, {}),
        ({"__prefect_kind": "json", "value": ""}, {}),
        ({"__prefect_kind": "json", "value": '{"control.episodes": 5}'}, {"control.episodes": 5}),
        ({"control.episodes": 5}, {"control.episodes": 5}),
    ],
)
def test_json_is_read_as_the_form_of_a_schedule_leaves_it(stored: dict[str, Any], meant: dict[str, Any]) -> None:
    assert spec(advanced={"overrides": stored}).advanced.overrides == meant


def test_json_that_is_none_is_refused_with_its_place() -> None:
    with pytest.raises(Refused, match=re.escape("campaign: advanced.options")):
        spec(advanced={"options": {"__prefect_kind": "json", "value": "{"}})


def test_an_environment_says_how_soon_its_progress_counts_and_the_campaign_has_the_last_word(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC + "\n[cancel.curve]\nfraction = 0.8\n")
    environment = environments.load(folder)
    stated = spec(environment=str(folder), advanced=Advanced(cancel_options={"fraction": 0.6}))
    found = [one.loaded_canceller(environment) for one in (spec(environment=str(folder)), stated)]
    assert [one.fraction for one in found if isinstance(one, ByCurve)] == [0.8, 0.6]
    wrong = quadratic(tmp_path / "wrong", toml=QUADRATIC + "\n[cancel.curve]\nfractoin = 0.8\n")
    with pytest.raises(Refused, match="curve: fractoin"):
        spec(environment=str(wrong)).check()
