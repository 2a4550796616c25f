# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module in this process with a measurement that is given: what becomes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_measure, benchmark, result_store
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_machine import Machine
from ansible_collections.tokforge.sglang.plugins.modules import benchmark as module

sys.path.insert(0, str(Path(__file__).parents[1] / "module_utils"))
import comparison_records

FIVE = (99.0, 100.0, 101.0, 100.5, 99.5)


class Bench:
    """Runs the module; `speed` is what the next measurement gives. `asked` are the requests that were made."""

    def __init__(self, capsys: pytest.CaptureFixture[str], root: Path) -> None:
        self.capsys, self.root = capsys, root
        self.asked: list[bench_measure.Request] = []
        self.record: dict[str, Any] = {}

    def measure(self, asked: bench_measure.Request) -> tuple[dict[str, Any], str]:
        self.asked.append(asked)
        kept = {"preflight": asked.preflight, "experiment": asked.experiment}
        return {**self.record, "id": f"r{len(self.asked)}", "raw_dir": "/r", **kept}, "the log's end"

    def run(self, factor: float = 1.0, measured: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
        """The module's result; what it warned of on the controller's display is among `warnings`."""
        usual = {1: [value * factor for value in FIVE], 8: [value * factor * 6 for value in FIVE]}
        self.record = {**comparison_records.record("r", usual), **(measured or {})}
        places = {"root": str(self.root), "facts_dir": str(self.root / "facts"), "model_path": "/m"}
        usual_arguments = {"python": "/e/python", "served_name": "tiny", "force": True, **places}
        with patch_module_args({**usual_arguments, **given}), pytest.raises(SystemExit):
            module.main()
        told = self.capsys.readouterr()
        found: dict[str, Any] = {"warnings": " ".join(told.err.split()), **json.loads(told.out)}
        return {**found, "warnings": json.dumps(found["warnings"])}

    @property
    def facts(self) -> dict[str, Any]:
        return result_store.read(str(self.root / "facts")) or {}


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(capsys, tmp_path)
    monkeypatch.setattr(bench_measure, "measure", made.measure)
    monkeypatch.setattr(bench_measure, "machine_of", lambda _context: Machine("8x GPU (cc 12.0, 95 GiB)"))
    return made


def test_comparison_with_the_baseline_is_returned_and_recorded(bench: Bench) -> None:
    first = bench.run()
    assert (first["comparison"], first["expectation"]) == (None, None)
    assert bench.facts["comparisons"] == []
    second = bench.run(1.2)
    assert (second["comparison"]["verdict"], second["comparison"]["a"]["ids"]) == ("faster", ["r1"])
    assert bench.facts["comparisons"] == [second["comparison"]]
    assert (second["hardware"], bench.facts["latest"]["id"]) == ("8x GPU (cc 12.0, 95 GiB)", "r2")


def test_regression_is_recorded_and_fails(bench: Bench) -> None:
    bench.run()
    found = bench.run(0.8, max_regression_percent={"output_tok_s": "5"})
    assert (found["failed"], found["valid"], found["changed"]) == (True, True, True)
    assert found["msg"].startswith("benchmark of 127.0.0.1:30000: output_tok_s at concurrency 1 is worse by 20.0 %")
    assert found["msg"].endswith("; the result is recorded")
    assert bench.facts["comparisons"][0]["regression"]["passed"] is False
    assert bench.facts["latest"]["id"] == "r2"


def test_regression_can_be_a_warning(bench: Bench) -> None:
    bench.run()
    found = bench.run(0.8, max_regression_percent={"output_tok_s": 5}, fail_on_regression=False, counts=8)
    assert "failed" not in found
    assert "at concurrency 8 is worse by 20.0 %" in found["warnings"]
    assert found["comparison"]["regression"]["passed"] is False


def test_regression_that_cannot_be_told_is_a_warning(bench: Bench) -> None:
    bench.run()
    few = comparison_records.record("x", {1: [50.0, 50.1]})
    found = bench.run(measured=few, max_regression_percent={"output_tok_s": 5})
    assert "failed" not in found
    assert "whether it became worse cannot be told" in found["warnings"]


def test_degraded_result_fails_with_what_to_look_at(bench: Bench) -> None:
    preflight = {
        "verdict": "warn",
        "findings": [{"level": "warn", "check": "p2p", "message": "P2P is off", "remedy": "set up ACS"}],
    }
    found = bench.run(expectation={"output_tok_s": {"8": 6000}}, preflight=preflight)
    assert (found["failed"], found["expectation"]["status"]) == (True, "degraded")
    assert "are 10 % of the expected 6000.0" in found["msg"] and "preflight_p2p: P2P is off; set up ACS" in found["msg"]
    assert bench.facts["latest"]["preflight"] == {**preflight, "counts": "0 failed, 1 to look at, 0 well"}
    assert bench.run(expectation={"output_tok_s": {"8": 650}})["expectation"]["status"] == "ok"
    lower = {"output_tok_s": {"8": 6000}, "degraded_below_percent": 9}
    assert bench.run(expectation=lower)["expectation"]["status"] == "ok"


def test_invalid_result_fails_for_its_reasons_and_is_never_a_baseline(bench: Bench) -> None:
    bench.run()
    invalid = {"valid": False, "reasons": ["concurrency 8: 31 of 32 requests completed"]}
    found = bench.run(0.1, invalid, max_regression_percent={"output_tok_s": 5}, baseline=True)
    assert (found["failed"], found["comparison"], found["log_tail"]) == (True, None, "the log's end")
    assert "31 of 32 requests completed; the result is recorded as invalid, see /r/bench.log" in found["msg"]
    assert [one["baseline"]["id"] for one in bench.facts["results"]] == ["r1"]


def test_declared_baseline_is_what_later_ones_are_held_against(bench: Bench) -> None:
    bench.run()
    bench.run(1.5, baseline=True)
    later = bench.run()
    assert (later["comparison"]["a"]["ids"], later["comparison"]["verdict"]) == (["r2"], "slower")
    assert later["comparison"]["notes"][0] == "the baseline is the declared baseline"


def test_trial_of_an_experiment_is_judged_there(bench: Bench) -> None:
    bench.run()
    trial = {"id": "ab-1", "candidate": "B", "round": 1}
    limits = {"max_regression_percent": {"output_tok_s": 5}, "expectation": {"output_tok_s": {"1": 1e6}}}
    found = bench.run(0.5, experiment=trial, **limits)
    assert "failed" not in found and found["expectation"] is None
    assert (bench.facts["comparisons"], bench.facts["latest"]["id"]) == ([], "r1")
    assert [one["experiment"] for one in bench.facts["history"]] == [None, trial]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_regression_percent": {"speed": 5}}, "max_regression_percent of 'speed'"),
        ({"max_regression_percent": {"output_tok_s": 0}}, "no limit"),
        ({"expectation": {"roofline_share": 30}}, "roofline_share is 30.0"),
        ({"expectation": {"output_tok_s": {"eight": 5}}}, "no concurrency"),
        ({"counts": 0}, "comparison at concurrency 0: no number of requests"),
        ({"engine": "vegeta"}, "value of engine must be one of"),
        ({"repetitions": 0}, "repetitions=0 is too small"),
    ],
)
def test_wishes_that_make_no_sense_are_refused_before_anything_is_measured(
    bench: Bench, given: dict[str, Any], message: str
) -> None:
    found = bench.run(**given)
    assert found["failed"] is True and message in found["msg"]
    assert bench.asked == [] and not (bench.root / "facts").exists()


def test_what_is_asked_reaches_the_measurement(bench: Bench) -> None:
    bench.run()
    usual = bench.asked[0]
    assert (usual.engine.name, usual.python, usual.sample_gpus) == ("sglang.bench_serving", "/e/python", True)
    assert (usual.parameters.concurrency, usual.parameters.capped) == (benchmark.LADDER, True)
    assert usual.parameters.repetitions == 6
    keys = {"api_key": "the-key-of-it", "admin_api_key": "the-other-key"}
    other = {
        "engine": "guidellm",
        "engine_python": "/g/python",
        "sample_gpus": False,
        "concurrency": [4],
        "env": {"A": 1},
    }
    bench.run(**other, **keys)
    asked = bench.asked[1]
    assert (asked.engine.name, asked.python, asked.sample_gpus) == ("guidellm", "/g/python", False)
    assert (asked.parameters.concurrency, asked.parameters.capped, asked.env) == ((4,), False, {"A": "1"})
    assert {name: getattr(asked, name) for name in keys} == keys


def test_other_engine_is_another_measurement(bench: Bench) -> None:
    prints = [bench.run(engine=name)["fingerprint"] for name in ("bench_serving", "aiperf", "guidellm")]
    assert len(set(prints)) == 3


def same(record: dict[str, Any], context: dict[str, Any] | None = None) -> dict[str, Any]:
    """A record that spares the next run: it has the fingerprint of the usual arguments."""
    asked = benchmark.Parameters(concurrency=benchmark.LADDER, input_len=256, output_len=64, capped=True)
    return {**record, "fingerprint": benchmark.fingerprint("sglang.bench_serving", context or {}, asked)}


def test_regression_does_not_pass_when_it_is_looked_at_once_more(bench: Bench) -> None:
    limits = {"max_regression_percent": {"output_tok_s": 5}}
    bench.run(baseline=True)
    slow = same(comparison_records.record("r", {8: [80.0 * factor / 100 for factor in FIVE]}))
    slow["points"][0]["concurrency"] = 8
    first = bench.run(measured=slow, **limits)
    again = bench.run(force=False, **limits)
    assert len(bench.asked) == 2
    assert (first["failed"], again["failed"], again["changed"], again["ran"]) == (True, True, False, False)
    assert again["msg"] == first["msg"]
    assert (again["comparison"]["verdict"], len(bench.facts["comparisons"])) == ("slower", 1)
    degraded = bench.run(force=False, expectation={"output_tok_s": {"8": 6000}}, fail_on_regression=False)
    assert ("failed" in degraded, degraded["expectation"]["status"]) == (False, "degraded")
    assert "of the expected 6000.0" in degraded["warnings"]


def test_new_configuration_that_fell_behind_is_no_baseline_of_its_own(bench: Bench) -> None:
    limits = {"max_regression_percent": {"output_tok_s": 5}}
    bench.run()
    slow = same(comparison_records.record("r", {8: [80.0 * factor / 100 for factor in FIVE]}))
    first = bench.run(measured=slow, **limits)
    again = bench.run(measured=slow, **limits)
    assert (first["failed"], again["failed"]) == (True, True)
    assert again["comparison"]["a"]["ids"] == ["r1"]
    assert again["comparison"]["notes"][0] == "the baseline is what its first measurement fell behind"
    # Who takes the new speed for good says so.
    bench.run(measured=slow, baseline=True)
    assert "failed" not in bench.run(measured=slow, **limits)


def test_garbage_is_measured_again_although_a_good_record_is_there(bench: Bench) -> None:
    bench.run(measured=same(comparison_records.record("r", {8: list(FIVE)})))
    assert bench.run(force=False, output_check={"passed": True, "reason": "fine"})["ran"] is False
    assert bench.run(force=False, output_check={"passed": False, "reason": "garbage"})["ran"] is True


def test_record_that_spares_a_run_can_be_declared_the_baseline_once(bench: Bench) -> None:
    bench.run(baseline=True)
    bench.run(measured=same(comparison_records.record("r", {8: list(FIVE)})))
    before = bench.facts
    predicted = bench.run(force=False, baseline=True, _ansible_check_mode=True)
    assert (predicted["changed"], bench.facts) == (True, before)
    found = bench.run(force=False, baseline=True)
    assert (found["changed"], found["ran"], found["diff"]["after"]) == (True, False, "baseline r2\n")
    assert [one["baseline"]["id"] for one in bench.facts["results"] if one["declared"]] == ["r2"]
    again = bench.run(force=False, baseline=True, max_regression_percent={"output_tok_s": 0.1})
    # A baseline is held against nothing.
    assert (again["changed"], again["comparison"]) == (False, None)
    assert len(bench.asked) == 2


@pytest.mark.parametrize("findings", [7, "all", [1, None], {"level": "warn"}])
def test_findings_of_another_shape_are_none(bench: Bench, findings: Any) -> None:
    found = bench.run(expectation={"output_tok_s": {"8": 6000}}, preflight={"findings": findings})
    assert found["expectation"]["status"] == "degraded"
    nothing = {"verdict": "ok", "counts": "0 failed, 0 to look at, 0 well", "findings": []}
    assert bench.facts["latest"]["preflight"] == nothing


def test_what_was_well_before_is_counted_and_not_kept(bench: Bench) -> None:
    well, bad = ({"level": level, "check": "c", "message": "m", "remedy": ""} for level in ("ok", "warn"))
    bench.run(preflight={"findings": [well, bad, well]})
    kept = {"verdict": "warn", "counts": "0 failed, 1 to look at, 2 well", "findings": [bad]}
    assert bench.facts["latest"]["preflight"] == kept


def test_run_without_checks_of_its_own_has_those_made_for_the_same_configuration(bench: Bench) -> None:
    bad = {"level": "warn", "check": "p2p", "message": "P2P is off", "remedy": "set up ACS"}
    same_context = {"configuration": benchmark.configuration({"backend": "triton"})}
    bench.run(measured=same_context, context={"backend": "triton"}, preflight={"findings": [bad]})
    first = bench.facts["latest"]["preflight"]
    # It is on the list of what to look at, too.
    found = bench.run(
        measured=same_context, context={"backend": "triton"}, expectation={"output_tok_s": {"8": 6000}}, preflight={}
    )
    assert "preflight_p2p: P2P is off; set up ACS" in found["msg"]
    assert bench.facts["latest"]["preflight"] == {**first, "from": "r1"}
    bench.run(measured=same_context, context={"backend": "triton"})
    assert bench.facts["latest"]["preflight"] == {**first, "from": "r1"}
    bench.run(context={"backend": "auto"})
    assert bench.facts["latest"]["preflight"] is None
    assert [asked.preflight for asked in bench.asked][-1] is None
