# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading what a benchmark wrote: recordings in, points, windows and files without secrets out."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_outputs import ASKED, RELEASES, measured, recording

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_collect, bench_engines, bench_run
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_collect import Window, collect, windows
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_run import Wanted
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Target

ENGINE = bench_engines.find("bench_serving")
TARGET = Target("127.0.0.1", 30000, "/m", "tiny-moe")
TWICE = replace(ASKED, repetitions=2)
SERVER_INFO = Path(__file__).parent / "fixtures" / "server_info"


@pytest.fixture
def runs(tmp_path: Path) -> list[Wanted]:
    return bench_run.wanted(ENGINE, TWICE, TARGET, str(tmp_path))


def write(one: Wanted, release: str = "0.5.23", **changes: Any) -> Path:
    path = Path(ENGINE.output_path(one.directory))
    path.write_text(json.dumps(measured(recording(release), changes)) + "\n")
    return path


@pytest.mark.parametrize("release", RELEASES)
def test_repetitions_of_a_point_become_one_point_with_its_command_line(runs: list[Wanted], release: str) -> None:
    for one, rate in zip(runs, (5.0, 6.5)):
        write(one, release, output_throughput=rate)
    found = collect(ENGINE, TWICE, runs, True, [])
    (point,) = found.points
    assert found.failure is None
    assert (point["valid"], point["reasons"], point["repetitions"], point["output_tok_s"]) == (True, [], 2, 5.75)
    assert point["values"]["output_tok_s"] == [5.0, 6.5]
    assert point["argv"] == ["-m", "sglang.bench_serving", *runs[0].arguments]
    assert found.durations_s == {(1, 0): 25.6, (1, 1): pytest.approx(128 / 6.5)}


def test_missing_repetition_is_named_by_its_point_and_a_missing_point_is_not_there(tmp_path: Path) -> None:
    asked = replace(TWICE, concurrency=(1, 4))
    runs = bench_run.wanted(ENGINE, asked, TARGET, str(tmp_path))
    write(runs[1])
    found = collect(ENGINE, asked, runs, True, [])
    assert [(point["concurrency"], point["reasons"]) for point in found.points] == [
        (1, ["1 of 2 repetitions gave a result"])
    ]
    # The process itself says why.
    assert (found.failure, list(found.durations_s)) == (None, [(1, 1)])
    assert collect(ENGINE, asked, runs[2:], True, []) == bench_collect.Collected([], None, {})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b'{"a": 1}', "half-written"),
        (b"nonsense a-secret-key\n", "is not JSON"),
        (b"[]\n", "is a list, not an object"),
        (b'{"server_info": ' + b"[" * 100_000 + b"\n", "is not JSON"),
    ],
)
def test_output_that_cannot_be_read_stays_as_evidence_without_secrets(
    runs: list[Wanted], content: bytes, why: str
) -> None:
    write(runs[0])
    path = Path(ENGINE.output_path(runs[1].directory))
    path.write_bytes(content)
    found = collect(ENGINE, TWICE, runs, True, ["a-secret-key", ""])
    assert found.failure is not None
    assert found.failure.startswith("concurrency 1, repetition 2: benchmark output in ")
    assert why in found.failure
    assert path.read_bytes() == content.replace(b"a-secret-key", b"********")
    assert found.points[0]["values"]["output_tok_s"] == [recording()["output_throughput"]]


@pytest.mark.parametrize("release", RELEASES)
def test_no_key_that_the_server_tells_stays_in_a_file(runs: list[Wanted], release: str) -> None:
    info = json.loads((SERVER_INFO / f"{release}.json").read_text())
    assert json.dumps(info).count("management-key") >= 2
    path = write(runs[0], server_info=info)
    assert collect(ENGINE, replace(ASKED, repetitions=1), runs[:1], True, []).failure is None
    text = path.read_text()
    assert "management-key" not in text
    assert "client-key" not in text
    kept = json.loads(text)
    assert kept["server_info"]["internal_states"][0]["admin_api_key"] == "********"
    assert kept["output_throughput"] == recording()["output_throughput"]


def test_short_words_under_the_name_of_a_key_do_not_take_figures_apart(runs: list[Wanted]) -> None:
    path = write(
        runs[0], server_info={"states": [{"api_key": "1", "auth_token": ["abc", "long-token"], "password": None}]}
    )
    collect(ENGINE, ASKED, runs[:1], True, [])
    assert json.loads(path.read_text())["output_throughput"] == recording()["output_throughput"]
    assert "long-token" not in path.read_text()


def test_large_output_is_judged_whole_and_kept_without_its_long_lists(
    runs: list[Wanted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_collect, "KEPT_OUTPUT_BYTES", 100)
    path = write(runs[0], generated_texts=["!" * 20] * 4)
    (point,) = collect(ENGINE, replace(ASKED, repetitions=1), runs[:1], False, []).points
    assert any("degenerate_output" in reason for reason in point["reasons"])
    kept = json.loads(path.read_text())
    assert ("itls" in kept, "generated_texts" in kept, "ttfts" in kept) == (False, False, "ttfts" in recording())


def test_output_too_large_to_judge_is_refused_and_removed(runs: list[Wanted], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(runs[0])
    monkeypatch.setattr(bench_collect, "MOST_OUTPUT_BYTES", 1000)
    found = collect(ENGINE, ASKED, runs[:1], True, ["k"])
    assert found.failure is not None
    assert "bytes are too many to judge; use fewer prompts" in found.failure
    assert (path.exists(), found.points) == (False, [])


def test_output_of_another_engine_is_kept_but_for_the_key(runs: list[Wanted]) -> None:
    path = write(runs[0], note="the-key in it")
    other = replace(ENGINE, name="aiperf", not_told=("accept_length",))
    before = path.read_text()
    (point,) = collect(other, ASKED, runs[:1], True, ["the-key"]).points
    assert path.read_text() == before.replace("the-key", "********")
    assert any("does not tell accept_length" in warning for warning in point["warnings"])


KEY = "sk-VERYSECRETKEY"


@pytest.mark.parametrize(
    "error", [f"HTTP 401 invalid key {KEY}", "x" * 290 + KEY, f"Traceback\n{{'Authorization': 'Bearer {KEY}'}}"]
)
def test_key_in_an_error_reaches_neither_the_file_nor_what_is_returned(runs: list[Wanted], error: str) -> None:
    path = write(runs[0], errors=["", "", "", error], note=7, random_output_len=KEY)
    found = collect(ENGINE, ASKED, runs[:1], True, ["VERYSECRETKEY", KEY])
    # A reason ends with the 300th character.
    assert "VERY" not in str(found) and "VERY" not in path.read_text()
    (point,) = found.points
    assert any("1 requests failed, the first with: " in reason and "****" in reason for reason in point["reasons"])
    assert any(reason.endswith("random_output_len is ********, asked was 32") for reason in point["reasons"])


def test_key_that_the_server_tells_of_itself_is_in_no_reason(runs: list[Wanted]) -> None:
    write(runs[0], errors=["", "", "", f"denied: {KEY}"], server_info={"internal_states": [{"admin_api_key": KEY}]})
    (point,) = collect(ENGINE, ASKED, runs[:1], True, []).points
    assert "1 requests failed, the first with: denied: ********" in str(point["reasons"])


def test_key_in_what_cannot_be_read_is_in_no_failure(runs: list[Wanted]) -> None:
    def refuse(data: bytes, where: str) -> dict[str, Any]:
        raise bench_collect.BenchmarkError(f"benchmark output in {where}: its schema is {KEY}")

    write(runs[0])
    found = collect(replace(ENGINE, figures=refuse), ASKED, runs[:1], True, [KEY])
    assert found.failure is not None and found.failure.endswith("its schema is ********")


@pytest.mark.parametrize("key", ["1", "12", "140", "5612", "0.91"])
def test_key_of_digits_leaves_the_figures_as_they_are(runs: list[Wanted], key: str) -> None:
    before = recording()
    for engine in (ENGINE, replace(ENGINE, name="aiperf")):
        path = write(runs[0], note=f"key {key}")
        (point,) = collect(engine, ASKED, runs[:1], True, [key]).points
        kept = json.loads(path.read_text())
        assert {name: kept[name] for name in before if name != "server_info"} == {
            name: value for name, value in before.items() if name != "server_info"
        }
        assert point["output_tok_s"] == before["output_throughput"]
        assert kept["note"] == ("key ********" if len(key) >= 4 else f"key {key}")


def test_output_that_is_nested_too_deep_is_a_failure_and_no_traceback(runs: list[Wanted]) -> None:
    deep: Any = "the-key"
    for _level in range(400):
        deep = {"a": [deep]}
    path = Path(ENGINE.output_path(runs[0].directory))
    for name in ("server_info", "note"):
        path.write_text(json.dumps({**recording(), name: 0})[:-1] + f', "{name}": {json.dumps(deep)}}}\n')
        found = collect(ENGINE, ASKED, runs[:1], True, ["the-key"])
        assert "the-key" not in str(found) and "the-key" not in path.read_text()
        assert found.failure is None or "nested too deep" in found.failure


# --- windows


def lines(*entries: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def test_window_begins_where_the_engine_told_it_and_lasts_as_long_as_it_says(runs: list[Wanted]) -> None:
    told = lines(
        {"steps": []}, {"begin": 100}, {"main": 107.5}, {"end": 130}, {"begin": 130}, {"main": 131}, {"end": 140}
    )
    assert windows(told, runs, {(1, 0): 20.0, (1, 1): 50.0}) == {1: [Window(107.5, 127.5), Window(131.0, 140.0)]}


def test_window_without_a_beginning_is_the_end_less_the_duration(runs: list[Wanted]) -> None:
    told = lines({"begin": 100}, {"end": 130}, {"begin": 130}, {"end": 140})
    assert windows(told, runs, {(1, 0): 20.0, (1, 1): 50.0}) == {1: [Window(110.0, 130.0), Window(130.0, 140.0)]}


def test_repetition_that_did_not_end_or_has_no_duration_has_no_window(runs: list[Wanted]) -> None:
    told = lines({"begin": 100}, {"main": 101}, {"end": 130}, {"begin": 130}, {"main": 131})
    assert windows(told, runs, {(1, 0): 20.0, (1, 1): 5.0}) == {1: [Window(101.0, 121.0)]}
    assert windows(told, runs, {(1, 0): None}) == {}
    assert windows(told, runs, {}) == {}


def test_windows_belong_to_their_points(tmp_path: Path) -> None:
    runs = [Wanted(value, 0, "", []) for value in (8, 1)]
    told = lines({"begin": 0}, {"main": 1}, {"end": 3}, {"begin": 3}, {"main": 4}, {"end": 9})
    assert windows(told, runs, {(8, 0): 1.0, (1, 0): 2.0}) == {8: [Window(1.0, 2.0)], 1: [Window(4.0, 6.0)]}


@pytest.mark.parametrize(
    "damage", [b'{"end": 13', b"[]\n5\nnull\n", b'{"main": 3}\n', b'{"begin": 1}\n{"main": "x"}\n', b"\xff\n"]
)
def test_damaged_lines_give_no_window_and_no_error(damage: bytes, runs: list[Wanted]) -> None:
    assert windows(damage, runs, {(1, 0): 1.0}) == {}


def test_keys_are_taken_out_of_all_that_an_engine_leaves(tmp_path: Path) -> None:
    key = 'se"cret-k\u03bby'
    logs = tmp_path / "concurrency-1" / "logs"
    logs.mkdir(parents=True)
    (logs / "aiperf.log").write_text(f"Bearer {key}\n")
    (logs / "config.json").write_text(json.dumps({"apiKey": key}))
    (tmp_path / "bench.log").write_text("nothing to hide: 12")
    os.chmod(logs / "aiperf.log", 0o600)
    outside = tmp_path.parent / "outside"
    outside.write_text(key)
    (logs / "link").symlink_to(outside)
    os.mkfifo(logs / "pipe")
    # What is short stands in other words, and in numbers.
    found = bench_collect.clean(str(tmp_path), [key, "12"])
    assert found == [str(logs / "aiperf.log"), str(logs / "config.json")]
    assert (logs / "aiperf.log").read_text() == "Bearer ********\n"
    assert json.loads((logs / "config.json").read_text()) == {"apiKey": "********"}
    assert stat.S_IMODE((logs / "aiperf.log").stat().st_mode) == 0o600
    assert (tmp_path / "bench.log").read_text() == "nothing to hide: 12"
    assert (outside.read_text(), bench_collect.clean(str(tmp_path), [])) == (key, [])


def test_known_secret_is_removed_wherever_it_stands_also_when_json_escapes_it(runs: list[Wanted]) -> None:
    secret = 'k"\u00e9y'
    info = {"launch_command": f"--api-key {secret}", "tokenizer": "t"}
    path = write(runs[0], errors=["", "", "", f"refused {secret}"], server_info=info)
    collect(ENGINE, ASKED, runs[:1], True, [secret, ""])
    clean = json.loads(path.read_text())
    assert clean["errors"] == ["", "", "", "refused ********"]
    assert clean["server_info"] == {"launch_command": "--api-key ********", "tokenizer": "t"}
