# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/facts.schema.json says what the code writes, and refuses what it does not."""

from __future__ import annotations

import copy
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from bench_outputs import ASKED, judged
from result_records import OF_1

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_points, comparison, result_document
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_record import Ran, Surroundings, make

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).parents[4]
SCHEMA = json.loads((ROOT / "docs" / "facts.schema.json").read_text(encoding="utf-8"))
FIXTURES = ROOT / "tests" / "fixtures"
SHAPE = {**dict.fromkeys(SCHEMA["$defs"]["record"]["properties"]["model_shape"]["required"], 1), "quantization": ""}
GPU = dict.fromkeys(SCHEMA["$defs"]["gpu"]["required"]) | {"index": 0, "samples": 3, "power_w": 250.5}


def wrong(document: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [f"{list(error.absolute_path)}: {error.message[:200]}" for error in validator.iter_errors(document)]


def record(name: str, **changes: Any) -> dict[str, Any]:
    """As the module makes it."""
    point = bench_points.point([judged(changes) for _again in range(5)], 5)
    points = [{**point, "argv": ["-m"], "gpu": [GPU], "roofline": {"ceiling_tok_s": 100.0, "share": 0.5}}]
    ran = Ran(name, "2026-03-14T09:15:09Z", points, None, 1.5, "/r", "sglang.bench_serving", "0.5.23", {"passed": True})
    start = {"id": "boot/1/2", "ready_s": None}
    around = Surroundings("1x NVIDIA H200", 1, start, {"verdict": "ok", "counts": {}}, {"id": "e"}, SHAPE)
    context = {"sglang_version": "0.5.23", "backend": "auto", "model": {"path": "/m"}}
    return make(ran, context, ASKED, ASKED, around)


@pytest.fixture
def document() -> dict[str, Any]:
    grown = result_document.append(result_document.empty(), record("1"))
    grown = result_document.append(grown, record("2", output_throughput=None, accept_length="much"))
    bare = record("3")
    bare.update(model_shape=None, output_check=None, start=None, preflight=None, experiment=None)
    bare["points"][0].update(gpu=None, roofline=None)
    return result_document.with_baseline(result_document.append(grown, bare), "1")


def test_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_documents_that_the_code_makes_fit(document: dict[str, Any]) -> None:
    assert wrong(result_document.empty()) == []
    assert wrong(json.loads(json.dumps(document))) == []
    assert [entry["valid"] for entry in document["history"]] == [True, False, True]


def test_unknown_keys_fit_wherever_they_stand(document: dict[str, Any]) -> None:
    document.update(schema_version=3, mine=1)
    document["latest"]["mine"] = document["latest"]["points"][0]["mine"] = 1
    document["results"][0]["mine"] = 1
    assert wrong(document) == []


def test_upgraded_documents_fit_but_for_what_their_points_never_had() -> None:
    lacking = set(SCHEMA["$defs"]["point"]["required"]) - set(OF_1["history"][0]["points"][0])
    whole = copy.deepcopy(OF_1)
    for entry in [*whole["history"], whole["latest"]]:
        for point in entry["points"]:
            point.update(dict.fromkeys(lacking - {"repetitions", "values", "spread"}))
    upgraded = result_document.read(whole)
    assert wrong(upgraded) == []
    assert wrong(OF_1) != []


def documents() -> dict[str, dict[str, Any]]:
    """The fact files of this schema among the fixtures, as a writer reads them."""
    paths = [*(FIXTURES / "report").glob("*.json"), *(FIXTURES / "facts").glob("*.json")]
    found = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    # A recording of a history alone has the empty lists that reading gives it.
    return {name: result_document.read(one) for name, one in sorted(found.items()) if one["schema_version"] == 2}


DOCUMENTS = documents()


def test_fact_files_of_the_fixtures_are_there() -> None:
    assert list(DOCUMENTS) == ["cpu-box.json", "gpu-box.json", "h200-explanation.json", "h200.json"]
    assert all(DOCUMENTS["gpu-box.json"][name] for name in result_document.LISTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_fact_files_of_the_fixtures_fit_whole(name: str) -> None:
    assert wrong(DOCUMENTS[name]) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_figures_of_the_fixtures_are_those_of_their_repetitions(name: str) -> None:
    for one in (point for entry in DOCUMENTS[name]["history"] for point in entry["points"]):
        for metric in bench_points.METRICS:
            values = one["values"][metric]
            assert len(values) == one["repetitions"] and one[metric] == statistics.median(values), metric
            assert one["spread"][metric] == pytest.approx(bench_points.spread(values), abs=0.02), metric
        assert one["output_tokens"] == one["num_prompts"] * one["output_len"] and one["completed"] == one["num_prompts"]
        assert one["output_tok_s"] * one["duration_s"] == pytest.approx(one["output_tokens"], rel=0.05)
        assert one["total_tok_s"] == pytest.approx(one["output_tok_s"] + one["input_tok_s"], rel=0.05)


@pytest.mark.parametrize("name", ["cpu-box.json", "gpu-box.json"])
def test_results_of_the_fixtures_are_what_their_history_gives(name: str) -> None:
    found, grown = DOCUMENTS[name], result_document.empty()
    for entry in found["history"]:
        grown = result_document.append(grown, entry)
    for entry in found["results"]:
        if entry["declared"]:
            grown = result_document.with_baseline(grown, entry["baseline"]["id"])
    assert found["latest"] == grown["latest"]
    names = ("model", "hardware", "fingerprint", "engine", "latest", "baseline", "declared", "best")
    assert [[one[key] for key in names] for one in found["results"]] == [
        [one[key] for key in names] for one in grown["results"]
    ]


def test_comparisons_that_the_code_makes_fit(document: dict[str, Any]) -> None:
    first, other = document["history"][0], {**document["history"][2], "hardware": "another"}
    for b in (other, document["history"][2]):
        made = comparison.compare([first], [b], kind="baseline", recorded_at="2026-03-14T09:15:09Z")
        assert wrong(result_document.add(document, "comparisons", json.loads(json.dumps(made)))) == [], made["why"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 1),
        (("compatible_with",), 3),
        (("latest",), []),
        (("latest", "valid"), 1),
        (("latest", "fingerprint"), "short"),
        (("latest", "hardware"), None),
        (("latest", "gpu_count"), -1),
        (("latest", "start"), {}),
        (("history", 0, "preflight", "from"), None),
        (("history", 0, "preflight", "findings"), {}),
        (("latest", "points", 0, "output_tok_s"), "fast"),
        (("latest", "points", 0, "completed"), 3.5),
        (("latest", "points", 0, "roofline"), {"share": 1}),
        (("latest", "points", 0, "gpu"), {}),
        (("latest", "points", 0, "values", "output_tok_s"), 5),
        (("history",), [{}]),
        (("results", 0, "declared"), None),
        (("results", 0, "best", 0, "output_tok_s"), None),
        (("comparisons",), [{"id": "x"}]),
        (("sweeps",), [{"id": "x"}]),
        (("explanations",), [{"id": "x"}]),
    ],
)
def test_what_the_code_never_writes_does_not_fit(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    document["latest"]["points"][0]["completed"] = 4
    changed = copy.deepcopy(document)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert wrong(document) == []
    assert wrong(changed) != []
