# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fact file holds: records by configuration, baselines, bests, bounds, and documents of other schemas."""

from __future__ import annotations

import copy
import json
from typing import Any

import comparison_records
import pytest
from result_records import OF_1, made, of_1

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_verdict, result_document
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_points import METRICS
from ansible_collections.tokforge.sglang.plugins.module_utils.result_document import (
    DocumentError,
    NewerError,
    add,
    append,
    baseline_for,
    empty,
    label_of,
    model_of,
    read,
    with_baseline,
)


def grown(*records: dict[str, Any], start: dict[str, Any] | None = None) -> dict[str, Any]:
    document = start or empty()
    for record in records:
        document = append(document, record)
    return document


def result(document: dict[str, Any], fingerprint: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in document["results"] if entry.get("fingerprint") == fingerprint)
    return found


# --- growing


def test_record_is_the_latest_the_last_of_the_history_and_its_configurations() -> None:
    first, second = made("1"), made("2", fingerprint="g")
    document = grown(first, second)
    assert document["latest"] == second
    assert document["history"] == [first, second]
    assert [(entry["model"], entry["hardware"], entry["fingerprint"]) for entry in document["results"]] == [
        ("/m/tiny", "CPU x, 2 cores", "f"),
        ("/m/tiny", "CPU x, 2 cores", "g"),
    ]
    assert result(document, "f") == {
        "model": "/m/tiny",
        "hardware": "CPU x, 2 cores",
        "fingerprint": "f",
        "engine": "sglang.bench_serving",
        "label": "0.5.23 auto",
        "latest": first,
        "baseline": first,
        "declared": False,
        "best": [{"concurrency": 1, "output_tok_s": 100.0, "id": "1", "recorded_at": "t1"}],
    }


def test_growing_leaves_the_document_before_as_it_was() -> None:
    before = grown(made("1"))
    kept = copy.deepcopy(before)
    with_baseline(append(before, made("2")), "2")
    add(before, "sweeps", {"id": "s"})
    assert before == kept


def test_baseline_is_the_first_valid_one_latest_the_last_and_best_the_best_at_each_point() -> None:
    document = grown(
        made("1", rates={1: 500.0}, valid=False),
        made("2", rates={1: 100.0, 8: 300.0}),
        made("3", rates={1: 90.0, 8: 310.0}),
        made("4", rates={1: 999.0, 8: None}, valid=False),
    )
    found = result(document, "f")
    assert (found["latest"]["id"], found["baseline"]["id"]) == ("4", "2")
    assert {entry["concurrency"]: (entry["output_tok_s"], entry["id"]) for entry in found["best"]} == {
        1: (100.0, "2"),
        8: (310.0, "3"),
    }


def test_equal_rate_does_not_take_the_best_away_and_no_rate_is_none() -> None:
    document = grown(made("1"), made("2"), made("3", rates={1: None, 4: float("nan")}))
    assert [entry["id"] for entry in result(document, "f")["best"]] == ["1"]


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": "g"},
        {"hardware": "1x NVIDIA H200"},
        {"context": {"model": {"path": "/m/other"}}},
        {"context": {"model": {"path": "/m/tiny", "revision": "abc"}}},
    ],
)
def test_other_model_hardware_or_fingerprint_is_another_result(change: dict[str, Any]) -> None:
    assert len(grown(made("1"), made("2", **change))["results"]) == 2


def test_result_keeps_its_unknown_keys_and_moves_to_the_end_when_it_is_measured() -> None:
    document = grown(made("1"), made("2", fingerprint="g"))
    document["results"][0]["note"] = "mine"
    document = append(document, made("3"))
    assert [entry["fingerprint"] for entry in document["results"]] == ["g", "f"]
    assert result(document, "f")["note"] == "mine"


def test_history_is_bounded_and_keeps_the_newest() -> None:
    document = grown(*(made(str(number)) for number in range(53)))
    assert [entry["id"] for entry in document["history"]] == [str(number) for number in range(3, 53)]
    # What fell out of the history is still what the configuration is held against.
    assert result(document, "f")["baseline"]["id"] == "0"


def test_large_sweep_takes_neither_the_newest_of_what_served_nor_its_results_away() -> None:
    served = [made(f"s{number}", fingerprint=f"s{number}") for number in range(12)]
    trials = [
        {**made(f"t{number}", fingerprint=f"t{number}"), "experiment": {"id": "sweep-1", "candidate": "x", "round": 1}}
        for number in range(60)
    ]
    document = grown(*served, *trials)
    kept = [one["id"] for one in document["history"]]
    assert len(kept) == 50
    assert kept[:10] == [f"s{number}" for number in range(2, 12)] and kept[10:] == [f"t{n}" for n in range(20, 60)]
    left = [one["fingerprint"] for one in document["results"]]
    assert len(left) == 32 and {f"s{number}" for number in range(12)} <= set(left) and left[-1] == "t59"
    # What was served last is what a new configuration is held against, whatever was tried meanwhile.
    assert told(document, made("new", fingerprint="new"))[0] == "s11"


def test_latest_is_the_baseline_also_when_the_history_has_lost_it() -> None:
    document = {**grown(made("s1", fingerprint="a")), "history": [], "results": []}
    assert told(document, made("s2", fingerprint="b"))[0] == "s1"


def test_results_are_bounded_and_a_declared_baseline_stays() -> None:
    document = grown(made("0", fingerprint="f0"), made("1", fingerprint="f1"))
    document = with_baseline(document, "0")
    document = grown(*(made(str(number), fingerprint=f"f{number}") for number in range(2, 40)), start=document)
    kept = [entry["fingerprint"] for entry in document["results"]]
    assert kept == ["f0", *(f"f{number}" for number in range(9, 40))]


def test_what_was_just_measured_stays_although_all_others_are_declared() -> None:
    document = empty()
    for number in range(32):
        document = with_baseline(append(document, made(str(number), hardware=f"h{number}")), str(number))
    document = append(document, made("new", hardware="h-new"))
    assert [entry["hardware"] for entry in document["results"]][-1] == "h-new"
    assert len(document["results"]) == 32
    assert document["results"][0]["hardware"] == "h1"


@pytest.mark.parametrize(("name", "limit"), [("comparisons", 20), ("sweeps", 10), ("explanations", 10)])
def test_lists_are_bounded_and_an_entry_with_the_same_id_is_replaced(name: str, limit: int) -> None:
    document = empty()
    for number in range(limit + 3):
        document = add(document, name, {"id": number})
    assert [entry["id"] for entry in document[name]] == list(range(3, limit + 3))
    document = add(document, name, {"id": 5, "finished": True})
    assert document[name][-1] == {"id": 5, "finished": True}
    assert len(document[name]) == limit
    nameless = add(add(empty(), name, {"a": 1}), name, {"a": 2})
    assert nameless[name] == [{"a": 1}, {"a": 2}]


# --- baselines


def test_declared_baseline_is_the_only_one_of_its_model_hardware_and_workload() -> None:
    document = grown(made("1"), made("2", fingerprint="g"), made("3", hardware="other"))
    document = with_baseline(with_baseline(with_baseline(document, "3"), "1"), "2")
    assert [(entry["latest"]["id"], entry["declared"]) for entry in document["results"]] == [
        ("1", False),
        ("2", True),
        ("3", True),
    ]


def test_declaring_takes_the_record_that_is_named_and_later_ones_leave_it() -> None:
    document = with_baseline(grown(made("1"), made("2"), made("3")), "2")
    assert result(append(document, made("4")), "f")["baseline"]["id"] == "2"
    assert result(append(document, made("4")), "f")["declared"] is True


def test_record_whose_configuration_is_kept_no_more_can_be_declared() -> None:
    document = grown(*(made(str(number), fingerprint=f"f{number}") for number in range(40)))
    assert all(entry["fingerprint"] != "f3" for entry in document["results"])
    document = with_baseline(document, "3")
    assert [entry["baseline"]["id"] for entry in document["results"] if entry["declared"]] == ["3"]
    assert len(document["results"]) == 32


@pytest.mark.parametrize(("name", "why"), [("2", "is not valid"), ("9", "is not in the history")])
def test_only_a_valid_record_that_is_kept_can_be_declared(name: str, why: str) -> None:
    document = grown(made("1"), made("2", valid=False))
    document["history"].insert(0, {"damaged": True})
    with pytest.raises(DocumentError, match=f"record {name} {why}"):
        with_baseline(document, name)


def test_record_is_held_against_declared_then_own_then_newest_valid() -> None:
    document = grown(made("1", fingerprint="a"), made("2", fingerprint="b"), made("3", fingerprint="b", valid=False))
    new = made("4", fingerprint="c")
    document = append(document, new)
    assert told(document, new) == ("2", "the newest valid measurement before it")
    again = made("5", fingerprint="c")
    document = append(document, again)
    assert told(document, again) == ("4", "the first valid measurement of this configuration")
    document = with_baseline(document, "1")
    assert told(document, again) == ("1", "the declared baseline")
    # The declared one itself is held against what was there before it.
    document = with_baseline(document, "5")
    assert told(document, again) == ("4", "the newest valid measurement before it")


def told(document: dict[str, Any], record: dict[str, Any]) -> tuple[str | None, str]:
    found, why = baseline_for(document, record)
    return (found["id"] if found else None), why


def workload(name: str, rate: float = 100.0, input_len: int = 64, ladder: tuple[int, ...] = (1, 8), **more: Any) -> Any:
    """A record of five repetitions with other lengths, prompts or settings."""
    values = {value: [rate * value * factor for factor in (0.99, 1.0, 1.01, 1.005, 0.995)] for value in ladder}
    found = comparison_records.record(name, values, parameters={"input_len": input_len, **more.pop("parameters", {})})
    for point in found["points"]:
        point["input_len"] = input_len
    return {**found, "raw_dir": "/r", "recorded_at": f"t{name}", "start": {"id": f"s{name}"}, **more}


def declared(document: dict[str, Any]) -> list[str]:
    return sorted(one["baseline"]["id"] for one in document["results"] if one["declared"] is True)


OTHER_WORKLOADS: list[dict[str, Any]] = [
    {"engine": {"name": "aiperf", "version": "1"}},
    {"input_len": 1024},
    {"parameters": {"dataset": "sharegpt"}},
    {"parameters": {"ignore_eos": False}},
    {"parameters": {"flush_cache": False}},
    {"parameters": {"seed": 2}},
    {"ladder": (4,)},
]


@pytest.mark.parametrize("change", OTHER_WORKLOADS, ids=str)
def test_declaring_leaves_what_was_declared_of_another_engine_or_workload(change: dict[str, Any]) -> None:
    first, other = workload("1", fingerprint="f1"), workload("2", fingerprint="f2", **change)
    document = with_baseline(with_baseline(grown(first, other), "1"), "2")
    assert declared(document) == ["1", "2"]
    # Each is held against its own.
    assert told(document, workload("3", fingerprint="f3")) == ("1", "the declared baseline")
    assert told(document, workload("3", fingerprint="f3", **change)) == ("2", "the declared baseline")
    again = with_baseline(append(document, workload("4", fingerprint="f4", **change)), "4")
    assert declared(again) == ["1", "4"]


def test_declaring_replaces_the_one_of_the_same_workload_whatever_the_start_and_the_version() -> None:
    # Two on one start without a flush of the cache cannot be compared, and are the same workload all the same.
    kept: dict[str, Any] = {"parameters": {"flush_cache": False}, "start": {"id": "s"}}
    document = grown(workload("1", **kept), workload("2", fingerprint="g", **kept))
    document = with_baseline(with_baseline(document, "1"), "2")
    assert declared(document) == ["2"]
    found, why = told(document, workload("3", fingerprint="h", **kept))
    assert found is None and "does not fit (the prefix cache was not emptied" in why
    elsewhere = workload("3", fingerprint="h", **{**kept, "start": {"id": "other"}})
    assert told(document, elsewhere) == ("2", "the declared baseline")
    # The same configuration again: the comparison says what to do.
    assert told(document, workload("3", fingerprint="g", **kept)) == ("2", "the declared baseline")


def test_declaration_of_other_lengths_hides_no_loss() -> None:
    short = workload("1", fingerprint="short")
    document = with_baseline(grown(short, workload("2", 200.0, 1024)), "1")
    now = workload("3", 100.0, 1024)
    assert told(document, now) == (
        "2",
        "the first valid measurement of this configuration; the declared baseline 1 does not fit (concurrency 1: input "
        "length: 64 and 1024, and 1 more)",
    )
    verdict = bench_verdict.judge(document, now, bench_verdict.Wanted({"output_tok_s": 5}))
    assert verdict.warnings() == []
    assert verdict.failures()[0].startswith("output_tok_s at concurrency 1 is worse by 50.0 %")
    assert verdict.comparison is not None and verdict.comparison["a"]["ids"] == ["2"]


def test_newest_that_fits_stands_in_for_a_declared_one_that_does_not() -> None:
    document = with_baseline(
        grown(
            workload("1", fingerprint="a"),
            workload("2", input_len=1024, fingerprint="b"),
            workload("3", input_len=512, fingerprint="c"),
        ),
        "1",
    )
    found, why = told(document, workload("4", input_len=1024, fingerprint="d"))
    assert found == "2"
    assert why.startswith(
        "the newest valid measurement before it; the declared baseline 1 does not fit (concurrency 1: "
    )
    found, why = told(document, workload("4", input_len=2048, fingerprint="d"))
    assert found is None
    assert why.startswith(
        "nothing that can be compared with it was measured before it; the declared baseline 1 does not"
    )
    # Where nothing is declared the newest is taken as it is, and the comparison says what is against it.
    undeclared = grown(workload("1", fingerprint="a"))
    assert told(undeclared, workload("4", input_len=2048))[0] == "1"


def test_of_several_declared_the_one_with_most_points_in_common_counts_then_the_newest() -> None:
    document = empty()
    for name, ladder in (("1", (1, 8)), ("2", (32,)), ("3", (64,))):
        document = with_baseline(append(document, workload(name, ladder=ladder, fingerprint=f"f{name}")), name)
    assert declared(document) == ["1", "2", "3"]
    assert told(document, workload("9", ladder=(1, 8, 32, 64), fingerprint="g"))[0] == "1"
    assert told(document, workload("9", ladder=(1, 32, 64), fingerprint="g"))[0] == "3"
    # Of those that do not fit the newest is told.
    assert "the declared baseline 3 does not fit (concurrency 2 " in told(document, workload("9", ladder=(2,)))[1]


def test_records_without_a_point_in_common_are_no_baseline_of_each_other() -> None:
    document = with_baseline(grown(made("1", points=[])), "1")
    why = told(document, made("2", fingerprint="g", points=[]))[1]
    assert why.endswith("the declared baseline 1 does not fit (there is no point in them)")


def test_trial_of_an_experiment_is_kept_and_is_not_what_serves() -> None:
    trial = made("2", fingerprint="b", experiment={"id": "ab-1", "candidate": "B"})
    document = append(grown(made("1", fingerprint="a")), trial)
    assert document["latest"]["id"] == "1"
    assert [one["id"] for one in document["history"]] == ["1", "2"]
    assert [(one["latest"]["id"], one["baseline"]["id"]) for one in document["results"]] == [("1", "1"), ("2", "2")]
    assert append(empty(), trial)["latest"] is None
    assert append(document, made("3", experiment=None))["latest"]["id"] == "3"


def test_trial_is_a_baseline_for_its_own_configuration_and_where_it_is_declared_only() -> None:
    trial = made("2", fingerprint="b", experiment={"id": "ab-1", "candidate": "B"})
    document = append(grown(made("1", fingerprint="a")), trial)
    other = made("3", fingerprint="c")
    assert told(document, other) == ("1", "the newest valid measurement before it")
    assert told(append(empty(), trial), other) == (None, "nothing was measured before it")
    assert told(document, made("4", fingerprint="b")) == ("2", "the first valid measurement of this configuration")
    assert told(with_baseline(document, "2"), other) == ("2", "the declared baseline")


def test_what_fell_behind_makes_no_room_for_the_next_that_is_as_slow() -> None:
    good, slow, third = made("1", fingerprint="a"), made("2", fingerprint="b"), made("3", fingerprint="c")
    document = append(grown(good), slow, good)
    assert told(document, third) == ("1", "what the newest valid measurement before it fell behind")
    # Who takes its speed for good says so.
    assert told(with_baseline(document, "2"), third) == ("2", "the declared baseline")
    assert told(append(document, made("4", fingerprint="d")), third) == ("4", "the newest valid measurement before it")


def test_measurement_of_another_workload_in_between_does_not_hide_what_can_be_compared() -> None:
    like, other, new = workload("1", fingerprint="a"), workload("2", input_len=9, fingerprint="b"), workload("3")
    assert told(grown(like, other), {**new, "fingerprint": "c"}) == ("1", "the newest valid measurement before it")
    # Then the comparison itself says why it is none.
    assert told(grown(other), {**new, "fingerprint": "c"}) == ("2", "the newest valid measurement before it")


def test_nothing_newer_and_nothing_of_another_machine_model_or_engine_is_a_baseline() -> None:
    record = made("3")
    document = grown(
        made("1", hardware="other"),
        made("2", context={"model": {"path": "/m/other"}}),
        made("e", fingerprint="e", engine={"name": "aiperf"}),
        record,
        made("9", fingerprint="z"),
    )
    assert told(document, record) == (None, "nothing was measured before it")
    document = with_baseline(document, "e")
    why = (
        "nothing that can be compared with it was measured before it; the declared baseline e does not fit "
        "(measured with: aiperf and sglang.bench_serving)"
    )
    assert told(document, record) == (None, why)


def test_first_record_has_nothing_to_be_held_against() -> None:
    assert told(grown(made("1")), made("1")) == (None, "nothing was measured before it")
    assert told(empty(), made("1")) == (None, "nothing was measured before it")


@pytest.mark.parametrize("baseline", ["text", 5, [], {}, {"id": "x"}, None])
def test_damaged_results_stand_in_nobodys_way(baseline: Any) -> None:
    document = grown(made("1", fingerprint="a"), made("2"))
    for entry in document["results"]:
        entry.update(baseline=baseline, best="none", declared="yes")
    document["results"].append({})
    document["history"].insert(0, {"points": 5, "context": []})
    record = made("3")
    document = append(document, record)
    assert result(document, "f")["best"][0]["id"] == "3"
    assert told(document, record) == ("2", "the newest valid measurement before it")
    assert with_baseline(document, "3")["results"][-1]["baseline"]["id"] == "3"


@pytest.mark.parametrize("best", [[5], [{"concurrency": [1]}], {"a": 1}, [{"concurrency": 1, "output_tok_s": "fast"}]])
def test_damaged_bests_are_replaced(best: Any) -> None:
    document = grown(made("1"))
    document["results"][0]["best"] = best
    found = result(append(document, made("2", rates={1: 50.0})), "f")["best"]
    assert [(entry["output_tok_s"], entry["id"]) for entry in found] == [(50.0, "2")]


# --- names


def test_model_is_named_by_directory_and_revision() -> None:
    assert model_of(made("1", context={"model": {"path": "/m/a", "revision": "7f"}})) == "/m/a@7f"
    none: list[Any] = [None, [], {}, {"model": None}, {"model": {}}, {"model": {"path": ""}}, {"model": "x"}]
    for context in none:
        assert model_of({"context": context}) == "unknown"


@pytest.mark.parametrize(
    ("context", "label"),
    [
        ({"sglang_version": "0.5.23", "backend": "auto"}, "0.5.23 auto"),
        (
            {
                "sglang_version": "0.5.23",
                "backend": "triton",
                "args": {"tp-size": 8, "dp-size": "1", "ep-size": "4", "pp-size": 1},
                "autotune_gate": {"gate": "open"},
            },
            "0.5.23 triton tp=8 ep=4 gate open",
        ),
        ({"args": [], "autotune_gate": {}}, "unknown"),
        (None, "unknown"),
    ],
)
def test_configuration_has_a_short_name(context: Any, label: str) -> None:
    assert label_of({"context": context}) == label


# --- other schemas


def test_document_of_schema_1_is_upgraded_without_losing_anything() -> None:
    document = read(OF_1)
    assert (document["schema_version"], document["compatible_with"]) == (2, 2)
    assert "baseline" not in document
    assert document["mine"] == {"kept": True}
    assert [entry["id"] for entry in document["history"]] == ["a", "b", "c"]
    assert document["latest"] == document["history"][-1]
    assert document["latest"]["extra"] == "x"
    first = document["history"][0]
    assert {name: first[name] for name in ("hardware", "gpu_count", "start", "preflight", "experiment")} == {
        "hardware": "unknown",
        "gpu_count": 0,
        "start": None,
        "preflight": None,
        "experiment": None,
    }
    assert first["configuration"] is None
    (found,) = document["results"]
    assert (found["latest"]["id"], found["baseline"]["id"], found["declared"]) == ("c", "a", False)
    assert found["best"] == [{"concurrency": 1, "output_tok_s": 121.5, "id": "c", "recorded_at": "tc"}]


def test_figure_of_schema_1_is_its_only_repetition() -> None:
    (point,) = read(OF_1)["history"][0]["points"]
    assert set(point["values"]) == set(point["spread"]) == set(METRICS)
    assert (point["repetitions"], point["output_tok_s"], point["values"]["output_tok_s"]) == (1, 120.0, [120.0])
    assert point["spread"]["output_tok_s"] == {"least": 120.0, "most": 120.0, "percent": 0.0}
    assert (point["values"]["itl_p99_ms"], point["spread"]["itl_p99_ms"]["percent"]) == ([None], None)
    assert (point["gpu"], point["roofline"], point["own"]) == (None, None, 1)


def test_damaged_entries_of_a_schema_1_history_take_nothing_with_them() -> None:
    damaged: list[Any] = [
        {},
        {"id": 5},
        of_1("x", points="none"),
        of_1("y", points=[3]),
        of_1("z", reasons=None),
        of_1("v", points=[{"concurrency": [1], "output_tok_s": "fast"}]),
    ]
    document = read({**OF_1, "history": [*damaged, *OF_1["history"]]})
    assert [entry.get("id") for entry in document["history"]] == [None, 5, "x", "y", "z", "v", "a", "b", "c"]
    assert document["history"][3]["points"] == [3]
    assert document["history"][5]["points"][0]["values"]["output_tok_s"] == [None]
    (found,) = document["results"]
    assert found["best"][0]["id"] == "c"


def test_schema_1_without_optional_keys_is_empty_and_its_own_baseline_is_kept() -> None:
    assert read({"schema_version": 1}) == empty()
    assert read({"schema_version": 1, "baseline": {"id": "b"}})["baseline"] == {"id": "b"}


def test_long_history_of_schema_1_is_bounded() -> None:
    document = read({"schema_version": 1, "history": [of_1(str(number)) for number in range(70)]})
    assert [entry["id"] for entry in document["history"]][::49] == ["20", "69"]


def test_document_of_this_schema_reads_as_it_is() -> None:
    document = with_baseline(grown(made("1"), made("2")), "1")
    assert read({**document, "mine": 1}) == {**document, "mine": 1}


def test_compatible_newer_document_is_read_and_grown_with_all_its_keys() -> None:
    newer = {**grown(made("1", since_3="x")), "schema_version": 3, "compatible_with": 2, "charts": [{"id": 7}]}
    newer["results"][0]["trend"] = [1, 2]
    document = append(read(newer), made("2"))
    assert (document["schema_version"], document["compatible_with"]) == (3, 2)
    assert document["charts"] == [{"id": 7}]
    assert document["history"][0]["since_3"] == "x"
    assert document["results"][0]["trend"] == [1, 2]


@pytest.mark.parametrize("compatible", [3, 99, None, "2", 2.0, True, [2]])
def test_newer_document_that_does_not_say_it_is_compatible_is_refused(compatible: Any) -> None:
    with pytest.raises(NewerError, match=r"schema 3.* knows 2") as caught:
        read({"schema_version": 3, "compatible_with": compatible, "latest": {"new": "shape"}})
    assert caught.value.version == 3
    with pytest.raises(NewerError):
        read({"schema_version": 3})


WRONG: list[Any] = [
    [],
    "text",
    None,
    {},
    {"schema_version": "2"},
    {"schema_version": True},
    {"schema_version": 0},
    {"schema_version": 2.0},
    *({"schema_version": 2, name: {}} for name in ("history", "results", "comparisons", "sweeps", "explanations")),
    *({"schema_version": 2, name: [1]} for name in ("history", "results", "comparisons", "sweeps", "explanations")),
    {"schema_version": 2, "history": None},
    {"schema_version": 2, "latest": []},
    {"schema_version": 2, "latest": {}},
    *(
        {"schema_version": version, "latest": {key: value for key, value in made("1").items() if key != name}}
        for name in ("id", "recorded_at", "fingerprint", "valid", "reasons", "points", "raw_dir")
        for version in (1, 2)
    ),
    {"schema_version": 2, "latest": {**made("1"), "points": ["x"]}},
    {"schema_version": 2, "latest": {**made("1"), "points": {"a": {}}}},
    {"schema_version": 2, "latest": {**made("1"), "reasons": [1]}},
    {"schema_version": 2, "latest": {**made("1"), "valid": 1}},
]


@pytest.mark.parametrize("document", WRONG, ids=lambda value: json.dumps(value)[:60])
def test_what_is_no_document_of_ours_is_refused(document: Any) -> None:
    with pytest.raises(DocumentError) as caught:
        read(document)
    assert not isinstance(caught.value, result_document.NewerError)
