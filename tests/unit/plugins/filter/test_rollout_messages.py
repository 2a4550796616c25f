# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout says at its end."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.filter.rollback_message import rollback_message
from ansible_collections.tokforge.sglang.plugins.filter.rollout_summary import rollout_summary

POINT = {"concurrency": 8, "output_tok_s": 424.238, "ttft_median_ms": 113.7, "tpot_median_ms": 14.87}


def facts(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "url": "http://127.0.0.1:30000",
        "host": "box",
        "inventory": "inventories/local",
        "log": "/r/log/server.log",
        "environment": {"versions": {"sglang": "0.5.23"}, "torch": {"version": "2.13.0+cpu"}},
        "model": {"served_name": "tiny-moe", "path": "/r/models/tiny-moe", "random_weights": True},
        "release": {"release": 3, "path": "/r/releases/3"},
        "backend": "auto",
        "benchmark": {"changed": True, "points": [POINT], "fact_file": "/r/facts/sglang.fact"},
    }
    return {**base, **changes}


def test_summary_names_url_model_versions_speed_log_and_facts() -> None:
    text = rollout_summary(facts())
    for part in (
        "http://127.0.0.1:30000",
        "tiny-moe (/r/models/tiny-moe)",
        "SGLang 0.5.23, torch 2.13.0+cpu\n",
        "424.2 tok/s output at concurrency 8, TTFT 114 ms, TPOT 14.9 ms (medians)\n",
        "/r/log/server.log",
        "/r/facts/sglang.fact",
        "3 (/r/releases/3)",
    ):
        assert part in text


def test_summary_says_when_the_figures_are_from_an_earlier_run() -> None:
    text = rollout_summary(facts(benchmark={"changed": False, "points": [POINT]}))
    assert "(recorded earlier for this very configuration)" in text


def test_summary_says_that_random_weights_talk_nonsense_and_only_then() -> None:
    assert "the text is not" in rollout_summary(facts())
    real = facts(model={"served_name": "m", "path": "/m", "random_weights": False})
    assert "the text is not" not in rollout_summary(real)


def test_summary_says_which_hosts_make_the_server_and_how_long_nobody_was_served() -> None:
    text = rollout_summary(facts(nodes={"names": ["front", "box"], "rank": 1}, downtime_s=41.5))
    assert "\n  nodes      front, box; front serves, box is node 1\n" in text
    assert "\n  downtime   41.5 s, from the stop of what served before until it served\n" in text
    alone = rollout_summary(facts(nodes={"names": ["box"], "rank": 0}, downtime_s=0.0))
    assert "nodes" not in alone and "downtime" not in alone


def test_message_of_a_rollout_that_went_back_says_how_long_nobody_was_served() -> None:
    release = {"release": 2, "current": 1, "restored": True, "downtime_s": 33.1}
    failure = {"task": "Measure it", "reason": "too slow"}
    assert rollback_message(failure, release) == (
        "release 2 failed: too slow\nrolled_back: true; release 1 was switched back and serves again. It served nobody"
        " for 33.1 s. The failed task was 'Measure it'."
    )
    assert "served nobody" not in rollback_message(failure, {**release, "downtime_s": 0.0})


def gate(backend: str | None, enabled_by: str | None) -> dict[str, Any]:
    return {"backend": backend, "enabled_by": enabled_by, "backends": ["flashinfer_trtllm"]}


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (gate("flashinfer_cutlass", "patch"), "gate open for flashinfer_cutlass, edited into the release"),
        (gate("flashinfer_cutlass", "upstream"), "gate open for flashinfer_cutlass, by the release itself"),
        (gate("flashinfer_cutlass", "foreign_patch"), "gate open for flashinfer_cutlass"),
        (gate("flashinfer_cutlass", None), "gate closed for flashinfer_cutlass"),
    ],
)
def test_summary_tells_whether_the_asked_backend_is_tuned_and_who_decided_that(told: dict[str, Any], line: str) -> None:
    assert f"\n  autotune   {line}\n" in rollout_summary(facts(environment={"autotune_gate": told}))


@pytest.mark.parametrize("told", [None, gate(None, None)])
def test_summary_is_silent_about_a_gate_that_nobody_asked_for(told: dict[str, Any] | None) -> None:
    assert "autotune" not in rollout_summary(facts(environment={"autotune_gate": told}))


TUNED = {"ranks_completed": ["TP0", "TP1"], "reason": "the gate is open"}
NOT_TUNED = {"ranks_completed": [], "reason": "the device is cpu"}


@pytest.mark.parametrize(
    ("start", "fallback", "line"),
    [
        ({"autotune": TUNED, "durations": {"autotune_s": 63.4}}, False, "2 of 2 tuned by FlashInfer in 63 s"),
        ({"autotune": TUNED}, False, "2 of 2 tuned by FlashInfer"),
        ({"autotune": NOT_TUNED}, False, "2, not tuned: the device is cpu"),
        ({"autotune": NOT_TUNED}, True, "2, autotune disabled since a start failed inside it"),
    ],
)
def test_summary_tells_how_many_ranks_were_tuned(start: dict[str, Any], fallback: bool, line: str) -> None:
    told = facts(start={"expected_ranks": ["TP0", "TP1"], **start}, release={"autotune_fallback": fallback})
    assert f"\n  ranks      {line}\n" in rollout_summary(told)
    assert "ranks" not in rollout_summary(facts(start={}))


def test_summary_without_a_measurement_does_not_invent_one() -> None:
    text = rollout_summary(facts(benchmark={}))
    assert "measured   nothing yet" in text
    assert "tok/s" not in text


def test_summary_of_a_check_says_would_and_quotes_an_inventory_with_a_space() -> None:
    text = rollout_summary(facts(check_mode=True, inventory="my boxes"))
    assert text.startswith("SGLang would serve on box at ")
    assert "make verify INVENTORY='my boxes'\n" in text
    assert rollout_summary(facts()).startswith("SGLang serves on box at ")


def test_rollback_message_names_cause_and_what_serves_now() -> None:
    text = rollback_message({"task": "Wait", "reason": "exit code 1"}, {"release": 4, "current": 3})
    assert text.startswith("release 4 failed: exit code 1\n")
    assert "rolled_back: true; release 3 was switched back and serves again" in text


def test_rollback_message_names_the_logs_there_are() -> None:
    def ending(**logs: str) -> str:
        failure = {"task": "Measure", "reason": "slow", **logs}
        return rollback_message(failure, {"release": 4, "current": 3}).rpartition("The failed task was ")[2]

    assert ending(log="a:/r/log/server.log", raw_dir="/r/bench/1") == (
        "'Measure'.\nLogs: what the servers wrote is in a:/r/log/server.log; what was measured in /r/bench/1."
    )
    assert ending(log="a:/r/log/server.log", raw_dir="").endswith(
        "\nLogs: what the servers wrote is in a:/r/log/server.log."
    )
    assert ending(log="", raw_dir="") == ending() == "'Measure'."


def test_rollback_message_of_the_first_rollout_says_that_nothing_runs() -> None:
    text = rollback_message({"task": "Wait", "reason": "x"}, {"release": 1, "current": None})
    assert "the server was stopped and nothing is current" in text


def test_rollback_message_names_another_rollout_and_claims_no_rollback() -> None:
    failure = {"task": "Run what current describes", "reason": "another rollout switched to release 3"}
    text = rollback_message(failure, {"release": 2, "current": 3, "restored": False, "taken_over": True})
    assert text.startswith(
        "release 2 failed: another rollout switched to release 3\nrolled_back: false; another rollout"
    )
    assert "release 3 is current in the meantime" in text and "was left alone; run again when it has ended" in text
    gone = rollback_message(failure, {"release": 2, "current": None, "restored": False, "taken_over": True})
    assert "no release is current in the meantime" in gone


def test_rollout_that_never_switched_claims_no_rollback() -> None:
    release = {"release": 2, "current": 1, "restored": False, "taken_over": False}
    text = rollback_message({"task": "Switch", "reason": "x"}, release)
    assert "rolled_back: false; it was not switched to, release 1 is current as before" in text


BACK = {"task": "Go back", "reason": "release 1: environment is gone"}


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({"serves": ""}, "nothing serves, and no server of release 2 is left running"),
        ({"serves": "2"}, "release 2 serves and was left as it is"),
        (
            {"stopping": {"task": "Stop", "reason": "it hangs"}},
            "stopping the server failed as well, in task 'Stop': it",
        ),
    ],
)
def test_failed_way_back_loses_neither_reason(more: dict[str, Any], left: str) -> None:
    text = rollback_message(
        {"task": "Wait", "reason": "it crashed", "going_back": BACK, **more}, {"release": 2, "current": 2}
    )
    assert text.startswith("release 2 failed: it crashed\nrolled_back: false; going back failed too, in task 'Go back'")
    assert "release 1: environment is gone" in text and "The failed task was 'Wait'" in text
    assert left in text


def test_failure_of_the_release_that_served_before_claims_no_rollback() -> None:
    text = rollback_message({"task": "Measure", "reason": "x"}, {"release": 1, "current": 1})
    assert "rolled_back: false" in text
    assert "left as it is" in text


def test_rollback_message_tells_files_that_came_back_and_that_nothing_was_switched() -> None:
    failure = {"task": "Measure", "reason": "x"}
    text = rollback_message(failure, {"release": 1, "current": 1, "restored": False, "undone": True})
    assert "release 1 failed: x\nrolled_back: true; release 1 has the files of before again, and serves" in text
    text = rollback_message(failure, {"undone": False})
    assert text.startswith(
        "this rollout failed: x\nrolled_back: false; nothing was switched, and what served before was"
    )
    text = rollback_message(failure, {"release": 4, "current": 4, "serves": True, "undone": False})
    assert "release 4 failed: x\nrolled_back: false; release 4 serves, and was left as it is" in text
