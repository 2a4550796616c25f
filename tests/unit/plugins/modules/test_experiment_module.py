# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module in this process: what it writes, what it predicts, and how it goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_files, result_store
from ansible_collections.tokforge.sglang.plugins.modules import experiment

sys.path.insert(0, str(Path(__file__).parents[1] / "module_utils"))
import comparison_records

REQUEST = {"ab": "max_running_requests", "ab_values": [1, 64]}


def run(capsys: pytest.CaptureFixture[str], root: Path, action: str, check_mode: bool = False, **more: Any) -> Any:
    """Run the module and give its result."""
    given = {"root": str(root), "action": action, "_ansible_check_mode": check_mode, **more}
    with patch_module_args(given), pytest.raises(SystemExit):
        experiment.main()
    told = capsys.readouterr()
    # In a process that has loaded a part of the controller before, warnings go to its display.
    return {"warnings": " ".join(told.err.split()), **json.loads(told.out)}


def begin(capsys: pytest.CaptureFixture[str], root: Path, check_mode: bool = False, **more: Any) -> Any:
    """Begin an A/B run with two starts a side."""
    given = {"kind": "ab", "request": REQUEST, "base": {"sglang_version": "0.5.23"}, "parameters": {"starts": 2}}
    return run(capsys, root, "begin", check_mode, **{"original_release": 3, **given, **more})


def warned(result: Any) -> str:
    """All warnings of this process as one text: Ansible keeps those of earlier calls."""
    return json.dumps(result["warnings"])


def recorded(root: Path, *ids: str, valid: bool = True) -> str:
    """A facts directory with records."""
    facts = root / "facts"
    for name in ids:
        entry = {"id": name, "recorded_at": "2026-01-01T00:00:00Z", "fingerprint": "f", "valid": valid, "raw_dir": "/r"}
        points = [{"concurrency": 8, "output_tok_s": 9.0, "valid": valid}]
        result_store.record(str(facts), {**entry, "reasons": [] if valid else ["garbage"], "points": points})
    return str(facts)


def comparisons(facts: str) -> Any:
    """What is compared in a facts directory."""
    return (result_store.read(facts) or {})["comparisons"]


def test_check_mode_predicts_and_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    told = begin(capsys, tmp_path, True)
    assert told["changed"] is True and list(tmp_path.iterdir()) == []
    later = run(capsys, tmp_path, "staged", True, id=told["id"], candidate="A", release=4)
    assert (later["changed"], later["trials"]) == (True, []) and list(tmp_path.iterdir()) == []
    done = begin(capsys, tmp_path)
    assert {key: done[key] for key in ("id", "trials", "candidates")} == {
        key: told[key] for key in ("id", "trials", "candidates")
    }
    assert done["diff"]["after"]["trials"]["waiting"] == 4 and done["diff"]["before"]["trials"]["waiting"] == 0
    path = Path(experiment_files.path_of(str(tmp_path), done["id"]))
    before = path.read_bytes()
    for check_mode in (True, False):
        assert begin(capsys, tmp_path, check_mode)["changed"] is False
    assert run(capsys, tmp_path, "trial_begin", True, id=done["id"], number=1)["trial"]["state"] == "running"
    assert path.read_bytes() == before


def test_whole_run_with_an_interruption(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = begin(capsys, tmp_path)["id"]
    for side, release in (("A", 4), ("B", 5)):
        assert run(capsys, tmp_path, "staged", id=name, candidate=side, release=release)["changed"] is True
    facts = recorded(tmp_path, "r1", "r2", "r3", "r4")
    first = run(capsys, tmp_path, "trial_begin", id=name, number=1)
    assert (first["skip"], first["progress"]) == (False, "trial 1 of 4, A (max-running-requests=1)")
    ended = run(capsys, tmp_path, "trial_end", id=name, number=1, record_id="r1", facts_dir=facts)
    assert (ended["trial"]["state"], ended["changed"]) == ("done", True)
    run(capsys, tmp_path, "trial_begin", id=name, number=2)
    # The play died here, and a candidate still serves.
    again = begin(capsys, tmp_path, original_release=5)
    assert (again["changed"], again["original_release"]) == (True, 3)
    assert [(one["number"], one["of"], one["candidate"], one["release"]) for one in again["trials"]] == [
        (2, 4, "B", 5),
        (3, 4, "B", 5),
        (4, 4, "A", 4),
    ]
    assert again["trials"][0]["settings"]["args"] == {"max-running-requests": 64}
    assert run(capsys, tmp_path, "trial_begin", id=name, number=1)["skip"] is True
    half = run(capsys, tmp_path, "conclude", id=name, facts_dir=facts)
    # One side has no record yet.
    assert (half["finished"], half["comparison"], half["serves"]) == (False, None, 3)
    assert comparisons(facts) == []
    for number in (2, 3, 4):
        run(capsys, tmp_path, "trial_begin", id=name, number=number)
        run(capsys, tmp_path, "trial_end", id=name, number=number, record_id=f"r{number}", facts_dir=facts)
    assert run(capsys, tmp_path, "next", id=name)["changed"] is False
    predicted = run(capsys, tmp_path, "conclude", True, id=name, facts_dir=facts)
    assert predicted["comparison"]["verdict"] == "not_comparable" and comparisons(facts) == []
    done = run(capsys, tmp_path, "conclude", id=name, facts_dir=facts)
    assert (done["finished"], done["serves"], done["comparison"]["a"]["label"]) == (True, 3, "max-running-requests=1")
    assert "too few to tell a difference from noise" in done["comparison"]["why"]
    assert (done["result"]["comparison_id"], done["result"]["comparison"]) == (
        done["comparison"]["id"],
        done["comparison"],
    )
    assert comparisons(facts) == [done["comparison"]]
    assert (done["compare"]["a"]["ids"], done["compare"]["b"]["ids"]) == (["r1", "r4"], ["r2", "r3"])
    finished = begin(capsys, tmp_path)
    assert (finished["changed"], finished["trials"], finished["result"]) == (False, [], done["result"])
    anew = begin(capsys, tmp_path, force=True)
    assert (anew["changed"], len(anew["trials"]), anew["result"]) == (True, 4, None)
    # With force an interrupted one is taken up all the same.
    run(capsys, tmp_path, "trial_begin", id=name, number=1)
    run(capsys, tmp_path, "trial_end", id=name, number=1, reason="died")
    assert len(begin(capsys, tmp_path, force=True)["trials"]) == 3


def test_invalid_record_and_failures_end_a_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = begin(capsys, tmp_path)["id"]
    facts = recorded(tmp_path, "bad", valid=False)
    ended = run(capsys, tmp_path, "trial_end", id=name, number=1, record_id="bad", facts_dir=facts)
    assert (ended["trial"]["state"], ended["trial"]["reason"]) == ("invalid", "garbage")
    run(capsys, tmp_path, "trial_end", id=name, number=4, reason="died")
    state = {one["name"]: (one["state"], one["reason"]) for one in run(capsys, tmp_path, "next", id=name)["candidates"]}
    assert state == {"A": ("failed", "died"), "B": ("waiting", "")}


def test_damaged_file_is_moved_and_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = begin(capsys, tmp_path)["id"]
    path = Path(experiment_files.path_of(str(tmp_path), name))
    path.write_text("{half")
    told = begin(capsys, tmp_path, True)
    assert path.read_text() == "{half" and "would be moved aside" in warned(told)
    done = begin(capsys, tmp_path)
    assert Path(done["set_aside"]).read_text() == "{half" and done["set_aside"] in warned(done)
    assert len(done["trials"]) == 4
    path.write_text("{half")
    assert "not JSON" in run(capsys, tmp_path, "next", id=name)["msg"] and path.read_text() == "{half"


def test_other_half_done_experiment_is_told_until_it_is_given_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = begin(capsys, tmp_path)["id"]
    other = begin(capsys, tmp_path, request={"ab": "backend", "ab_values": ["triton"]})
    assert [one["id"] for one in other["unfinished"]] == [first] and f"id: {first}" in warned(other)
    assert other["unfinished"][0]["original_release"] == 3
    looked = run(capsys, tmp_path, "look", original_release=5)
    assert {one["id"] for one in looked["unfinished"]} == {first, other["id"]} and looked["changed"] is False
    path = Path(experiment_files.path_of(str(tmp_path), first))
    before = path.read_bytes()
    assert run(capsys, tmp_path, "abandon", True, id=first)["changed"] is True and path.read_bytes() == before
    assert run(capsys, tmp_path, "abandon", id=first)["changed"] is True
    assert run(capsys, tmp_path, "abandon", id=first)["changed"] is False
    quiet = begin(capsys, tmp_path, request={"ab": "backend", "ab_values": ["triton"]})
    assert quiet["unfinished"] == []
    assert [one["id"] for one in run(capsys, tmp_path, "look")["unfinished"]] == [other["id"]]
    # The same call takes it up again.
    assert len(begin(capsys, tmp_path)["trials"]) == 4


def finished(capsys: pytest.CaptureFixture[str], root: Path, speeds: dict[str, float], **given: Any) -> tuple[str, str]:
    """An experiment in which every trial of a candidate has its speed; its id and the facts directory."""
    facts = str(root / "facts")
    name = begin(capsys, root, **given)["id"]
    for _stage in range(3):
        for trial in run(capsys, root, "next", id=name)["trials"]:
            number, speed = trial["number"], speeds[trial["candidate"]]
            # A hair of noise that is another for every trial.
            value = speed * (1 + number % 7 / 10_000)
            made = comparison_records.record(f"r{number}", {1: [value / 4] * 3, 8: [value] * 3}, start=f"s{number}")
            result_store.record(facts, {**made, "raw_dir": "/r", "experiment": {"id": name}})
            run(capsys, root, "trial_begin", id=name, number=number)
            run(capsys, root, "trial_end", id=name, number=number, record_id=f"r{number}", facts_dir=facts)
    return name, facts


def test_experiment_is_over_when_what_came_out_serves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name, facts = finished(capsys, tmp_path, {"A": 100.0, "B": 150.0})
    done = run(capsys, tmp_path, "conclude", id=name, facts_dir=facts)
    assert (done["finished"], done["served"], done["serves"]) == (True, False, 3)
    # The play died before: a candidate is current, and neither this call nor another one takes it for the original.
    run(capsys, tmp_path, "staged", id=name, candidate="B", release=5)
    again = begin(capsys, tmp_path, original_release=5, facts_dir=facts)
    assert (again["finished"], again["served"], again["serves"], again["trials"]) == (True, False, 3, [])
    assert run(capsys, tmp_path, "look", original_release=5)["original_release"] == 3
    assert run(capsys, tmp_path, "served", id=name, facts_dir=facts)["changed"] is True
    assert run(capsys, tmp_path, "served", id=name, facts_dir=facts)["changed"] is False
    assert begin(capsys, tmp_path)["served"] is True
    looked = run(capsys, tmp_path, "look", original_release=5)
    assert (looked["changed"], looked["original_release"]) == (False, 5)


def test_lost_fact_file_costs_the_trials_and_no_more(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name, facts = finished(capsys, tmp_path, {"A": 100.0, "B": 150.0})
    Path(facts, "sglang.fact").unlink()
    assert "run the same experiment again" in run(capsys, tmp_path, "conclude", id=name, facts_dir=facts)["msg"]
    again = begin(capsys, tmp_path, facts_dir=facts)
    assert [one["number"] for one in again["trials"]] == [1, 2, 3, 4]
    assert again["lost"] == ["4 records are not in the fact file any more, so their trials are made again"]


def test_release_that_is_gone_is_staged_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = begin(capsys, tmp_path)["id"]
    run(capsys, tmp_path, "staged", id=name, candidate="A", release=4)
    (tmp_path / "releases").mkdir()
    again = begin(capsys, tmp_path)
    assert [(one["name"], one["staged"], one["release"]) for one in again["candidates"]] == [
        ("A", False, None),
        ("B", False, None),
    ]


def test_point_that_counts_has_to_be_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refused = begin(capsys, tmp_path, concurrency=7, parameters={"points": [1, 8]})
    assert refused["failed"] is True and "measured are 1, 8" in refused["msg"]
    assert begin(capsys, tmp_path, concurrency=8, parameters={"points": [1, 8]})["changed"] is True


def test_ab_run_is_compared_as_it_is_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name, facts = finished(capsys, tmp_path, {"A": 100.0, "B": 150.0}, parameters={"starts": 5})
    done = run(capsys, tmp_path, "conclude", id=name, facts_dir=facts, concurrency=8)
    assert (done["comparison"]["verdict"], done["comparison"]["kind"]) == ("faster", "ab")
    assert any("concurrency 8 is tested by itself" in note for note in done["comparison"]["notes"])
    more = {"tie_percent": 60, "breakdown": {"a": {}, "b": {}}}
    tied = run(capsys, tmp_path, "conclude", id=name, facts_dir=facts, **more)
    # Only an explanation has one.
    assert "breakdown" not in tied["result"]
    assert tied["comparison"]["verdict"] == "no_measurable_gain"
    # One experiment is one comparison: the newer one takes the place of the older.
    assert done["comparison"]["id"] == tied["comparison"]["id"] == name
    assert [(one["id"], one["verdict"]) for one in comparisons(facts)] == [(name, "no_measurable_gain")]
    for more, said in (({"metric": "speed"}, "no such figure"), ({"concurrency": 0}, "no number of requests")):
        refused = run(capsys, tmp_path, "conclude", id=name, facts_dir=facts, **more)
        assert refused["failed"] is True and said in refused["msg"]
    (tmp_path / "other").mkdir()
    lost = run(capsys, tmp_path, "conclude", id=name, facts_dir=str(tmp_path / "other"))
    assert "looking for record r1 in" in lost["msg"]


def test_sweep_is_recorded_with_the_comparison_that_confirms_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = {"kind": "sweep", "request": {"grid": {"args": {"page-size": [16]}}}, "parameters": {"rounds": 1}}
    name, facts = finished(capsys, tmp_path, {"original": 100.0, "page-size=16": 130.0}, **given)
    run(capsys, tmp_path, "staged", id=name, candidate="page-size=16", release=8)
    done = run(capsys, tmp_path, "conclude", id=name, facts_dir=facts, metric="ttft_p99_ms")
    assert (done["result"]["winner"], done["result"]["verdict"], done["serves"]) == ("page-size=16", "faster", 8)
    # A sweep says itself by what it is judged.
    assert (done["comparison"]["metric"], done["comparison"]["kind"]) == ("output_tok_s", "sweep")
    kept = result_store.read(facts) or {}
    assert [(one["id"], one["comparison_id"]) for one in kept["sweeps"]] == [(name, done["comparison"]["id"])]
    assert [one["id"] for one in kept["comparisons"]] == [done["comparison"]["id"]]
    # The trials are no measurement of what serves.
    assert kept["latest"] is None and len(kept["history"]) == 12


def test_winner_that_does_not_serve_is_told_until_it_does(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = {"kind": "sweep", "request": {"grid": {"args": {"page-size": [16]}}}, "parameters": {"rounds": 1}}
    name, facts = finished(capsys, tmp_path, {"original": 100.0, "page-size=16": 130.0}, **given)
    run(capsys, tmp_path, "staged", id=name, candidate="page-size=16", release=8)
    run(capsys, tmp_path, "conclude", id=name, facts_dir=facts)
    why = "rank 3 ran out of memory"
    foreseen = run(capsys, tmp_path, "served", check_mode=True, id=name, facts_dir=facts, reason=why)
    assert foreseen["changed"] is True
    assert [one["verdict"] for one in (result_store.read(facts) or {})["sweeps"]] == ["faster"]
    failed = run(capsys, tmp_path, "served", id=name, facts_dir=facts, reason=why)
    assert (failed["changed"], failed["served"], failed["result"]["verdict"]) == (True, False, "does_not_serve")
    [kept] = (result_store.read(facts) or {})["sweeps"]
    assert (kept["winner"], kept["verdict"]) == ("page-size=16", "does_not_serve")
    assert why in kept["why"] and "it was chosen (page-size=16 reaches 130" in kept["why"]
    # The next play tries it again, and then it is what was found at first.
    again = begin(capsys, tmp_path, facts_dir=facts, **given)
    assert (again["serves"], again["served"], again["trials"]) == (8, False, [])
    done = run(capsys, tmp_path, "served", id=name, facts_dir=facts)
    assert (done["served"], done["result"]["verdict"]) == (True, "faster")
    assert [one["verdict"] for one in (result_store.read(facts) or {})["sweeps"]] == ["faster"]
    assert run(capsys, tmp_path, "served", id=name, facts_dir=facts)["changed"] is False


def test_winner_that_is_given_up_before_it_serves_is_told_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = {"kind": "sweep", "request": {"grid": {"args": {"page-size": [16]}}}, "parameters": {"rounds": 1}}
    name, facts = finished(capsys, tmp_path, {"original": 100.0, "page-size=16": 130.0}, **given)
    run(capsys, tmp_path, "staged", id=name, candidate="page-size=16", release=8)
    run(capsys, tmp_path, "conclude", id=name, facts_dir=facts)
    looked = run(capsys, tmp_path, "look", original_release=8)
    assert (looked["original_release"], [one["id"] for one in looked["unfinished"]]) == (3, [name])
    for check_mode, verdict in ((True, "faster"), (False, "does_not_serve")):
        given_up = run(capsys, tmp_path, "abandon", check_mode, id=name, facts_dir=facts)
        assert given_up["changed"] is True
        assert [one["verdict"] for one in (result_store.read(facts) or {})["sweeps"]] == [verdict]
    assert "it was given up before it served" in (result_store.read(facts) or {})["sweeps"][0]["why"]
    assert run(capsys, tmp_path, "abandon", id=name, facts_dir=facts)["changed"] is False
    assert run(capsys, tmp_path, "look", original_release=8)["unfinished"] == []
    # The same call lets it serve after all.
    again = begin(capsys, tmp_path, facts_dir=facts, **given)
    assert (again["serves"], again["served"], again["trials"]) == (8, False, [])
    assert run(capsys, tmp_path, "served", id=name, facts_dir=facts)["result"]["verdict"] == "faster"


def test_original_that_is_given_up_has_nothing_to_tell(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name, facts = finished(capsys, tmp_path, {"A": 100.0, "B": 150.0})
    run(capsys, tmp_path, "conclude", id=name, facts_dir=facts)
    before = Path(facts, "sglang.fact").read_bytes()
    assert run(capsys, tmp_path, "abandon", id=name, facts_dir=facts)["changed"] is True
    assert Path(facts, "sglang.fact").read_bytes() == before
    assert run(capsys, tmp_path, "look")["unfinished"] == []


def test_explanation_is_recorded_and_compares_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = {"kind": "explain", "request": {"a": {}, "b": {"backend": "triton"}}, "parameters": {"starts": 1}}
    name, facts = finished(capsys, tmp_path, {"A": 100.0, "B": 130.0}, **given)
    breakdown = {"a": {"step_ms": 12.0}, "b": {"step_ms": 9.0}}
    done = run(capsys, tmp_path, "conclude", id=name, facts_dir=facts, breakdown=breakdown)
    assert (done["comparison"], done["serves"], done["finished"]) == (None, 3, True)
    assert done["result"]["breakdown"] == breakdown
    kept = result_store.read(facts) or {}
    assert [(one["id"], one["breakdown"]) for one in kept["explanations"]] == [(name, breakdown)]
    assert (kept["comparisons"], kept["sweeps"]) == ([], [])
    assert round(kept["explanations"][0]["total"]["change_percent"]) == 30


def test_result_that_cannot_be_recorded_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = {"kind": "explain", "request": {"a": {}, "b": {"backend": "triton"}}, "parameters": {"starts": 1}}
    name, _facts = finished(capsys, tmp_path, {"A": 100.0, "B": 130.0}, **given)
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "sglang.fact").write_text('{"schema_version": 99}')
    told = run(capsys, tmp_path, "conclude", id=name, facts_dir=str(tmp_path / "newer"))
    assert (told["failed"], told["schema_version"]) == (True, 99)


def test_explanation_of_a_record(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    facts = recorded(tmp_path, "plain")
    entry = json.loads(Path(facts, "sglang.fact").read_text())["latest"]
    context = {"sglang_version": "0.5.23", "backend": "triton"}
    result_store.record(facts, {**entry, "id": "other", "context": context})
    given = {"kind": "explain", "request": {"a": {}, "b": {"record": "other"}}, "facts_dir": facts}
    found = begin(capsys, tmp_path, **given)
    assert [one["name"] for one in found["candidates"]] == ["A", "B"]
    assert found["candidates"][1]["settings"]["backend"] == "triton"
    assert found["compare"] == {}
    given["request"] = {"a": {}, "b": {"record": "gone"}}
    assert "looking for record gone" in begin(capsys, tmp_path, **given)["msg"]
    assert "facts_dir is not given" in begin(capsys, tmp_path, **{**given, "facts_dir": None})["msg"]


def test_what_the_machine_sets_is_in_no_configuration_and_decides_which_experiment_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = recorded(tmp_path, "plain")
    entry = json.loads(Path(facts, "sglang.fact").read_text())["latest"]
    context = {"sglang_version": "0.5.23", "backend": "triton", "env": {"NCCL_NVLS_ENABLE": "1", "OTHER": "2"}}
    result_store.record(facts, {**entry, "id": "other", "context": context})
    given = {"kind": "explain", "request": {"a": {}, "b": {"record": "other"}}, "facts_dir": facts}
    names = {"env_pass_on": ["NCCL_NVLS_ENABLE"]}
    without = begin(capsys, tmp_path, True, **given)
    assert without["candidates"][1]["settings"]["env"] == {"NCCL_NVLS_ENABLE": "1", "OTHER": "2"}
    ids = [without["id"]]
    for value in ("0", "1", ""):
        monkeypatch.setenv("NCCL_NVLS_ENABLE", value)
        found = begin(capsys, tmp_path, True, **given, **names)
        assert [one["name"] for one in found["candidates"]][2:] == ["backend=triton", "env.OTHER=2"]
        assert found["candidates"][1]["settings"]["env"] == {"OTHER": "2"}
        ids.append(found["id"])
    assert len(set(ids)) == 4
    assert begin(capsys, tmp_path, True, **given, env_pass_on=[])["id"] == ids[0]
    base = {"sglang_version": "0.5.23", "env": {"NCCL_NVLS_ENABLE": 0}}
    both = begin(capsys, tmp_path, **names, base=base)
    assert both["failed"] is True and "NCCL_NVLS_ENABLE is in sglang_server_env too" in both["msg"]
    monkeypatch.delenv("NCCL_NVLS_ENABLE")
    gone = begin(capsys, tmp_path, **names)
    assert gone["failed"] is True and "does not set NCCL_NVLS_ENABLE, which" in gone["msg"]
    assert not Path(tmp_path, "state", "experiments").exists() or not list(tmp_path.glob("state/experiments/*.json"))


@pytest.mark.parametrize(
    ("action", "more", "message"),
    [
        ("begin", {}, "missing"),
        ("staged", {"id": "ab-000000000000"}, "missing"),
        ("next", {"id": "ab-000000000000"}, "begin it first"),
        ("next", {"id": "../x"}, "is no id"),
        ("trial_end", {"id": "ab-000000000000"}, "missing"),
        ("conclude", {"id": "ab-000000000000"}, "missing"),
        ("begin", {"kind": "sweep"}, "none beside the original"),
        ("begin", {"kind": "ab", "request": REQUEST, "base": {"port": 1}}, "it has port"),
    ],
)
def test_what_cannot_be_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, action: str, more: dict[str, Any], message: str
) -> None:
    result = run(capsys, tmp_path, action, **more)
    assert result["failed"] is True and message in result["msg"]
